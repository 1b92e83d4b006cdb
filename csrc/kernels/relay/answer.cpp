#include "kernels/relay/answer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/prefetch.h"
#include "kernels/sample/allowed_edges.h"
#include "kernels/sample/between.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/rules.h"

namespace pyg_batchgnn {
namespace {

// The questions to an owner, read and checked.

// The excluded pairs of one relation: examples by their place in the block, targets by row.
struct PairColumns {
  std::vector<int64_t> example, target, source;

  ExcludedPairs pairs() const {
    return {example.data(), target.data(), source.data(), static_cast<int64_t>(source.size())};
  }
};

// Some nodes of one type in a block.
template <class Index>
struct AskedNodes {
  const Index* node;
  const Index* place;   // of the example of each node among those of the block; null: none
  const Index* number;  // of the examples
  int64_t first;        // the first own id of the type

  // Returns a node as a row of its type. It may be any number if the asking rank is wrong.
  Target target(int64_t i) const {
    const uint64_t row = static_cast<uint64_t>(node[i]) - static_cast<uint64_t>(first);  // may wrap
    return {static_cast<int64_t>(row), example(i)};
  }
  int64_t example(int64_t i) const { return place == nullptr ? 0 : static_cast<int64_t>(place[i]); }

  uint64_t key(uint64_t relation_key, int64_t i, int64_t original) const {
    const uint64_t key = fold(relation_key, static_cast<uint64_t>(original));
    return place == nullptr ? key : fold(key, static_cast<uint64_t>(number[place[i]]));
  }
};

// The question of one minibatch.
template <class Index>
struct AskedBlock {
  ReadBlock<Index> block;
  size_t peer;                        // the asking rank
  std::vector<int64_t> begins;        // [types + 1] of each type among the nodes
  std::vector<int64_t> latest;        // the time of the seed of each example
  std::vector<PairColumns> excluded;  // by relation; empty if there are none

  // Returns the nodes from the i-th on. `first`: the first own id of their type.
  AskedNodes<Index> nodes(int64_t i, int64_t first) const {
    const Index* place = block.body.example;
    return {block.body.node + i, place == nullptr ? nullptr : place + i, block.body.number, first};
  }

  ExcludedPairs pairs(size_t relation) const {
    return excluded.empty() ? ExcludedPairs() : excluded[relation].pairs();
  }
};

// Fills in the columns of a block beside its nodes. `first`: the first own id of each type. Returns
// false if they are about nodes, examples or relations that the block or the graph does not have.
template <class Index>
bool read_columns(const OwnPart<Index>& part, const QuestionShape& shape, const std::vector<int64_t>& first,
                  AskedBlock<Index>* asked) {
  const BlockSize& size = asked->block.size;
  const Block<const Index>& body = asked->block.body;
  asked->begins = {0};
  for (int64_t type = 0; type < shape.types; ++type) {
    asked->begins.push_back(asked->begins.back() + asked->block.nodes_of[type]);
  }
  const auto is_known = [&](Index example) { return 0 <= example && example < size.examples; };
  if (shape.disjoint && !std::all_of(body.example, body.example + size.nodes, is_known)) return false;
  if (shape.timed && size.examples > 0) {  // nothing is copied from or to null
    asked->latest.resize(static_cast<size_t>(size.examples));
    std::memcpy(asked->latest.data(), body.time, asked->latest.size() * sizeof(int64_t));
  }
  if (size.pairs == 0) return true;
  std::vector<std::array<int64_t, 4>> rows;  // relation, example, target, source
  for (int64_t p = 0; p < size.pairs; ++p) {
    const Index* words = body.pair + p * kPairWords;
    const auto relations = static_cast<Index>(part.graph.relations.size());
    if (words[0] < 0 || words[0] >= size.nodes || words[1] < 0 || words[1] >= relations) return false;
    const int64_t type = part.graph.relations[static_cast<size_t>(words[1])].target;
    const Target target = asked->nodes(words[0], first[static_cast<size_t>(type)]).target(0);
    rows.push_back({words[1], target.example, target.node, words[2]});
  }
  std::sort(rows.begin(), rows.end());
  asked->excluded.resize(part.graph.relations.size());
  for (const auto& [relation, example, target, source] : rows) {
    PairColumns& columns = asked->excluded[static_cast<size_t>(relation)];
    columns.example.push_back(example);
    columns.target.push_back(target);
    columns.source.push_back(source);
  }
  return true;
}

// Reads all questions. Sets the fault of the first that is wrong.
template <class Index>
std::vector<AskedBlock<Index>> read_questions(const OwnPart<Index>& part, const Requests<Index>& requests,
                                              Fault* fault) {
  std::vector<AskedBlock<Index>> asked;
  std::vector<ReadBlock<Index>> blocks;
  const std::vector<int64_t> first = part.firsts();
  const Index* words = requests.words;
  for (size_t peer = 0; peer < requests.words_of.size(); ++peer) {
    const int64_t many = requests.words_of[peer];
    blocks.clear();
    bool right = read_blocks(words, many, requests.shape, &blocks);
    for (size_t b = 0; right && b < blocks.size(); ++b) {
      asked.push_back({blocks[b], peer, {}, {}, {}});
      right = read_columns(part, requests.shape, first, &asked.back());
    }
    if (!right) {
      *fault = {WireError::kBlocks, static_cast<int64_t>(peer), many};
      break;
    }
    words += many;
  }
  return asked;
}

// The places of an owner's answers: a section for each asking rank and relation.

// A piece of a section, which one task writes.
struct Piece {
  size_t peer, relation;
  int64_t nodes;             // of this piece
  int64_t picks = 0;         // of this piece
  int64_t nodes_before = 0;  // in the section
  int64_t picks_before = 0;  // in the section
};

class Sections {
 public:
  Sections(const std::vector<AnswerShape>& shapes, size_t peers)
      : shapes_(shapes), sections_(peers * shapes.size()), peers_(peers) {}

  // Returns the number of picks of all sections, once they are laid out.
  int64_t picks() const { return picks_; }

  // Returns the place of a piece's picks among those of all sections.
  int64_t first_pick(const Piece& piece) const { return of(piece).first_pick + piece.picks_before; }

  // Returns the sections of the first asking rank that have picks.
  std::vector<OpenAnswers::Section> with_picks() const {
    std::vector<OpenAnswers::Section> out;
    for (size_t relation = 0; relation < shapes_.size(); ++relation) {
      const Section& one = sections_[relation];
      const AnswerShape& shape = shapes_[relation];
      if (one.picks == 0) continue;
      out.push_back({static_cast<int64_t>(relation), one.picks, one.begin + shape.edges_at(one.nodes),
                     one.begin + shape.sources_at(one.nodes, one.picks), shape.edge_bytes});
    }
    return out;
  }

  // Places a piece behind those before it in its section.
  void add(Piece* piece) {
    Section& section = of(*piece);
    piece->nodes_before = section.nodes;
    piece->picks_before = section.picks;
    section.nodes += piece->nodes;
    section.picks += piece->picks;
  }

  // Makes room for the messages, when all pieces are added.
  void lay_out(Answers* out) {
    int64_t total = 0;
    for (size_t peer = 0; peer < peers_; ++peer) {
      const int64_t begin = total;
      int64_t picks = 0;
      for (size_t relation = 0; relation < shapes_.size(); ++relation) {
        Section& section = sections_[peer * shapes_.size() + relation];
        section.begin = total;
        section.first_pick = picks_ + picks;
        total += shapes_[relation].words(section.nodes, section.picks);
        picks += section.picks;
      }
      picks_ += picks;
      out->words_to.push_back(total - begin);
      out->picks_for.push_back(picks);
    }
    words_ = out->words.reserve(total + 1);
    for (size_t at = 0; at < sections_.size(); ++at) clear_ends(sections_[at], shapes_[at % shapes_.size()]);
  }

  // The places of a piece.
  void* counts(const Piece& piece) const { return words_ + of(piece).begin; }
  char* edges(const Piece& piece) const {
    const AnswerShape& shape = shapes_[piece.relation];
    return bytes_at(of(piece).begin + shape.edges_at(of(piece).nodes)) +
           piece.picks_before * shape.edge_bytes;
  }
  char* sources(const Piece& piece) const {
    const AnswerShape& shape = shapes_[piece.relation];
    const Section& section = of(piece);
    return bytes_at(section.begin + shape.sources_at(section.nodes, section.picks)) +
           piece.picks_before * shape.id_bytes;
  }

 private:
  struct Section {
    int64_t nodes = 0, picks = 0, begin = 0;
    int64_t first_pick = 0;  // among those of all sections
  };

  Section& of(const Piece& piece) { return sections_[piece.peer * shapes_.size() + piece.relation]; }
  const Section& of(const Piece& piece) const {
    return sections_[piece.peer * shapes_.size() + piece.relation];
  }
  char* bytes_at(int64_t word) const { return reinterpret_cast<char*>(words_ + word); }

  // Sets bytes to zero that are not written: of the last word of each of a section's three parts.
  void clear_ends(const Section& section, const AnswerShape& shape) const {
    if (section.nodes == 0) return;
    int64_t* words = words_ + section.begin;
    for (const int64_t end : {shape.edges_at(section.nodes), shape.sources_at(section.nodes, section.picks),
                              shape.words(section.nodes, section.picks)}) {
      words[end - 1] = 0;
    }
  }

  const std::vector<AnswerShape>& shapes_;
  std::vector<Section> sections_;
  size_t peers_;
  int64_t* words_ = nullptr;
  int64_t picks_ = 0;
};

// The answers of an owner about an induced subgraph. A question holds all nodes of a minibatch, in
// local order. The owner answers for its own, with the local ids of the sources among the nodes.
template <class Index, class Naming>
class InducedOwner {
 public:
  InducedOwner(const OwnPart<Index>& part, const Plan& plan, const std::vector<AskedBlock<Index>>& asked,
               const std::vector<AnswerShape>& shapes, size_t peers)
      : part_(part), plan_(plan), shapes_(shapes), first_(part.firsts()), sections_(shapes, peers) {
    for (const AskedBlock<Index>& block : asked) {
      for (size_t relation = 0; relation < shapes.size(); ++relation) {
        tasks_.push_back({&block, {block.peer, relation, 0}, {}});
      }
    }
  }

  Answers run(int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    Answers out;
    for (const Task& task : tasks_) {
      if ((out.fault = outsider(*task.block))) return out;
    }
    const auto tasks = static_cast<int64_t>(tasks_.size());
    run_tasks(tasks, threads, [&](int64_t at, int64_t) {
      const auto scratch = scratches.borrow();
      find(&tasks_[static_cast<size_t>(at)], *scratch);
    });
    for (Task& task : tasks_) sections_.add(&task.piece);
    sections_.lay_out(&out);
    for (const Task& task : tasks_) write(task);
    return out;
  }

 private:
  using Id = std::conditional_t<Naming::kDisjoint, uint64_t, MapId<Index>>;

  // One relation of one block.
  struct Task {
    const AskedBlock<Index>* block;
    Piece piece;
    SampledEdges edges;  // of own nodes, from local ids
  };

  // Nodes may be anybody's but must be nodes.
  Fault outsider(const AskedBlock<Index>& asked) const {
    for (int64_t i = 0; i < asked.block.size.nodes; ++i) {
      const int64_t node = asked.block.body.node[i];
      if (node < 0 || node >= part_.num_nodes) {
        return {WireError::kNode, static_cast<int64_t>(asked.peer), node};
      }
    }
    return {};
  }

  void find(Task* task, Scratch<Index>& scratch) const {
    const AskedBlock<Index>& asked = *task->block;
    const Relation<Index>& relation = part_.graph.relations[task->piece.relation];
    const auto source = static_cast<size_t>(relation.source), target = static_cast<size_t>(relation.target);
    const Naming naming(part_.num_nodes);
    std::vector<int64_t> code;
    const AskedNodes<Index> all = asked.nodes(0, 0), own = asked.nodes(0, first_[target]);
    for (int64_t i = asked.begins[source]; i < asked.begins[source + 1]; ++i) {
      code.push_back(naming.code(all.target(i)));
    }
    Nodes<Id> sources;
    sources.take_seeds(code.data(), static_cast<int64_t>(code.size()), 0);
    auto& maps = scratch.maps(naming);
    if (maps.empty()) maps.resize(1);
    sources.enter(maps.front());

    code.clear();
    const auto rows = static_cast<uint64_t>(relation.edges.num_nodes);
    for (int64_t i = asked.begins[target]; i < asked.begins[target + 1]; ++i) {
      if (static_cast<uint64_t>(own.target(i).node) < rows) code.push_back(naming.code(own.target(i)));
    }
    Nodes<Id> targets;
    targets.take_seeds(code.data(), static_cast<int64_t>(code.size()), 0);
    AllowedEdges<Index> allowed(relation, plan_.window, asked.latest.data(),
                                asked.pairs(task->piece.relation), scratch.listed);
    task->edges =
        induced_edges(relation, naming, part_.num_nodes, targets, maps.front(), allowed, plan_.edge_ids)
            .take(targets.count());
    task->piece.nodes = targets.count();
    task->piece.picks = task->edges.count;
  }

  void write(const Task& task) const {
    const AnswerShape& shape = shapes_[task.piece.relation];
    const SampledEdges& edges = task.edges;
    std::vector<int64_t> picks;
    for (int64_t i = 0; i < edges.targets; ++i) {
      picks.push_back(edges.indptr.data()[i + 1] - edges.indptr.data()[i]);
    }
    shape.write_counts(sections_.counts(task.piece), task.piece.nodes_before, picks.data(), edges.targets);
    std::copy_n(edges.source.data(), edges.count, reinterpret_cast<Index*>(sections_.sources(task.piece)));
    char* ids = sections_.edges(task.piece);
    if (shape.edge_bytes == 4) std::copy_n(edges.edge.data(), edges.count, reinterpret_cast<int32_t*>(ids));
    if (shape.edge_bytes == 8) std::copy_n(edges.edge.data(), edges.count, reinterpret_cast<int64_t*>(ids));
  }

  const OwnPart<Index>& part_;
  const Plan& plan_;
  const std::vector<AnswerShape>& shapes_;
  const std::vector<int64_t> first_;  // own id of each type
  Sections sections_;
  std::vector<Task> tasks_;
};

constexpr int64_t kChunk = 4096;  // nodes of a task, some tens of microseconds of work
constexpr int64_t kLists = 128;   // nodes whose lists are measured together

// Picks for the nodes of one hop.
template <class Index>
class Owner {
 public:
  Owner(const OwnPart<Index>& part, const Plan& plan, int64_t hop,
        const std::vector<AskedBlock<Index>>& asked, const std::vector<AnswerShape>& shapes, size_t peers)
      : part_(part),
        plan_(plan),
        hop_(hop),
        shapes_(shapes),
        first_(part.firsts()),
        sections_(shapes, peers) {
    for (const AskedBlock<Index>& block : asked) cut(block);
  }

  // Answers, but leaves sources and edge ids to be read.
  OpenAnswers run_open(int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    OpenAnswers out;
    open_ = &out.position;
    out.answers = run(threads, scratches);
    if (!out.answers.fault) out.sections = sections_.with_picks();
    return out;
  }

  Answers run(int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    const auto chunks = static_cast<int64_t>(chunks_.size());
    const auto each = [&](auto&& work) {
      run_tasks(chunks, threads, [&](int64_t at, int64_t) {
        const auto scratch = scratches.borrow();
        work(chunks_[static_cast<size_t>(at)], *scratch);
      });
    };
    each([&](Chunk& chunk, Scratch<Index>& scratch) { count(chunk, scratch); });
    Answers out;
    for (Chunk& chunk : chunks_) {
      if (chunk.outsider >= 0) {
        out.fault = {WireError::kNode, static_cast<int64_t>(chunk.piece.peer),
                     nodes(chunk).node[chunk.outsider]};
        return out;
      }
      sections_.add(&chunk.piece);
    }
    sections_.lay_out(&out);
    if (open_ != nullptr) open_->reserve(sections_.picks() + 1);
    each([&](Chunk& chunk, Scratch<Index>& scratch) { fill(chunk, scratch); });
    return out;
  }

 private:
  // Some nodes of one block in one relation.
  struct Chunk {
    const AskedBlock<Index>* block;
    int64_t begin;  // among the nodes of the block
    Piece piece;
    int64_t outsider = -1;  // the place of a node that this rank does not own
  };

  void cut(const AskedBlock<Index>& block) {
    for (size_t relation = 0; relation < shapes_.size(); ++relation) {
      if (!shapes_[relation].asked) continue;
      const auto type = static_cast<size_t>(part_.graph.relations[relation].target);
      for (int64_t at = block.begins[type]; at < block.begins[type + 1]; at += kChunk) {
        const int64_t nodes = std::min(kChunk, block.begins[type + 1] - at);
        chunks_.push_back({&block, at, {block.peer, relation, nodes}});
      }
    }
  }

  const Relation<Index>& relation(const Chunk& chunk) const {
    return part_.graph.relations[chunk.piece.relation];
  }
  uint64_t key(const Chunk& chunk) const {
    return part_.graph.key(relation(chunk), plan_.labor != Labor::kNone, chunk.block->block.key);
  }
  int64_t first(const Chunk& chunk) const { return first_[static_cast<size_t>(relation(chunk).target)]; }
  AskedNodes<Index> nodes(const Chunk& chunk) const { return chunk.block->nodes(chunk.begin, first(chunk)); }

  template <class Body>
  void by_rule(const Chunk& chunk, Scratch<Index>& scratch, const Body& body) const {
    const auto number = static_cast<int64_t>(chunk.piece.relation);
    with_rule(relation(chunk), plan_, plan_.fanout(number, hop_), chunk.block->latest.data(),
              chunk.block->pairs(chunk.piece.relation), key(chunk), scratch, body);
  }

  // Measures the lists of some nodes and calls body(i, picks) for each.
  template <class Rule, class Body>
  void measure(Rule& rule, const AskedNodes<Index> nodes, const int64_t* indptr, int64_t begin, int64_t end,
               int64_t all, const Body& body) const {
    const auto target = [&](int64_t i) { return nodes.target(begin + i); };
    measure_lists(rule, indptr, end - begin, all - begin, target,
                  [&](int64_t i, int64_t picks) { body(begin + i, picks); });
  }

  // Another rank names the nodes. They may be any numbers if that rank is wrong.
  void count(Chunk& chunk, Scratch<Index>& scratch) const {
    const Csc<Index>& edges = relation(chunk).edges;
    const AskedNodes<Index> asked = nodes(chunk);
    const auto rows = static_cast<uint64_t>(edges.num_nodes);
    for (int64_t i = 0; i < chunk.piece.nodes; ++i) {
      if (static_cast<uint64_t>(asked.target(i).node) < rows) continue;
      chunk.outsider = i;
      return;
    }
    by_rule(chunk, scratch, [&](auto& rule) {
      int64_t total = 0;
      for (int64_t begin = 0; begin < chunk.piece.nodes; begin += kLists) {
        const int64_t end = std::min(begin + kLists, chunk.piece.nodes);
        measure(rule, asked, edges.indptr, begin, end, chunk.piece.nodes,
                [&](int64_t, int64_t picks) { total += picks; });
      }
      chunk.piece.picks = total;
    });
  }

  void fill(const Chunk& chunk, Scratch<Index>& scratch) const {
    Place place{sections_.edges(chunk.piece), reinterpret_cast<Index*>(sections_.sources(chunk.piece)),
                open_ == nullptr ? nullptr : open_->data() + sections_.first_pick(chunk.piece)};
    by_rule(chunk, scratch, [&](auto& rule) {
      for (int64_t begin = 0; begin < chunk.piece.nodes; begin += kLists) {
        fill_lists(rule, chunk, begin, std::min(begin + kLists, chunk.piece.nodes), scratch, &place);
      }
    });
  }

  // The places of the next picks of a chunk.
  struct Place {
    char* edge;
    Index* source;
    int64_t* position;  // null: sources and edge ids are read
  };

  // Handles nodes in groups of about kBlock picks: chooses, then reads.
  template <class Rule>
  void fill_lists(Rule& rule, const Chunk& chunk, int64_t begin, int64_t end, Scratch<Index>& scratch,
                  Place* place) const {
    const AnswerShape& shape = shapes_[chunk.piece.relation];
    const AskedNodes<Index> asked = nodes(chunk);
    const Csc<Index>& edges = relation(chunk).edges;
    const int64_t* original = part_.node == nullptr ? nullptr : part_.node + (asked.first - part_.first);
    void* counts = sections_.counts(chunk.piece);
    std::array<int64_t, kLists> picks;
    measure(rule, asked, edges.indptr, begin, end, chunk.piece.nodes,
            [&](int64_t i, int64_t own) { picks[static_cast<size_t>(i - begin)] = own; });
    shape.write_counts(counts, chunk.piece.nodes_before + begin, picks.data(), end - begin);
    const uint64_t relation_key = key(chunk);
    for (int64_t group = begin; group < end;) {
      int64_t last = group, held = 0;
      do {
        held += picks[static_cast<size_t>(last++ - begin)];
      } while (last < end && held + picks[static_cast<size_t>(last - begin)] <= kBlock);
      PickBuffers& buffers = scratch.groups[0];
      int64_t* position = buffers.position.reserve(held + 1);
      const ListGroup lists{group - begin, last - begin, held, position, buffers.drawn.reserve(held + 1)};
      for (int64_t i = group + kLists; i < std::min(last + kLists, chunk.piece.nodes); ++i) {
        const int64_t ahead = asked.target(i).node;  // what the next lists are measured by
        prefetch_line(&edges.indptr[ahead]);
        if (original != nullptr) prefetch_line(&original[ahead]);
      }
      const auto node_key = [&](int64_t i) {
        const int64_t node = asked.target(begin + i).node;
        return asked.key(relation_key, begin + i, original == nullptr ? node : original[node]);
      };
      choose_lists(rule, lists, node_key, [&](int64_t i) { return picks[static_cast<size_t>(i)]; });
      read(edges, position, held, shape, place);
      group = last;
    }
  }

  // Writes the sources and the edge ids at some positions, or the positions.
  static void read(const Csc<Index>& edges, const int64_t* position, int64_t count, const AnswerShape& shape,
                   Place* place) {
    if (place->position != nullptr) {
      place->position = std::copy_n(position, count, place->position);
      return;
    }
    for (int64_t e = 0; e < count; ++e) place->source[e] = edges.indices[position[e]];
    place->source += count;
    if (shape.edge_bytes == 4)
      translate_edge_ids(edges, position, count, reinterpret_cast<int32_t*>(place->edge));
    if (shape.edge_bytes == 8)
      translate_edge_ids(edges, position, count, reinterpret_cast<int64_t*>(place->edge));
    place->edge += count * shape.edge_bytes;
  }

  const OwnPart<Index>& part_;
  const Plan& plan_;
  const int64_t hop_;
  const std::vector<AnswerShape>& shapes_;
  const std::vector<int64_t> first_;  // own id of each type
  Sections sections_;
  std::vector<Chunk> chunks_;
  Buffer<int64_t>* open_ = nullptr;  // gets the positions of the picks where these are not read
};

}  // namespace

template <class Index>
Answers answer(const OwnPart<Index>& part, const Plan& plan, int64_t hop, const Requests<Index>& requests,
               int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
  Answers out;
  const std::vector<AskedBlock<Index>> asked = read_questions(part, requests, &out.fault);
  if (out.fault) return out;
  const std::vector<AnswerShape> shapes = answer_shapes(plan, hop, part.num_edges, sizeof(Index));
  const size_t peers = requests.words_of.size();
  if (hop < plan.hops) {
    return Owner<Index>(part, plan, hop, asked, shapes, peers).run(threads, scratches);
  }
  if (requests.shape.disjoint) {
    return InducedOwner<Index, DisjointNodes>(part, plan, asked, shapes, peers).run(threads, scratches);
  }
  return InducedOwner<Index, SharedNodes>(part, plan, asked, shapes, peers).run(threads, scratches);
}

template <class Index>
OpenAnswers answer_open(const OwnPart<Index>& part, const Plan& plan, int64_t hop,
                        const Requests<Index>& requests, int64_t threads,
                        ObjectPool<Scratch<Index>>& scratches) {
  OpenAnswers out;
  const std::vector<AskedBlock<Index>> asked = read_questions(part, requests, &out.answers.fault);
  if (out.answers.fault) return out;
  const std::vector<AnswerShape> shapes = answer_shapes(plan, hop, part.num_edges, sizeof(Index));
  return Owner<Index>(part, plan, hop, asked, shapes, requests.words_of.size()).run_open(threads, scratches);
}

template Answers answer(const OwnPart<int32_t>&, const Plan&, int64_t, const Requests<int32_t>&, int64_t,
                        ObjectPool<Scratch<int32_t>>&);
template Answers answer(const OwnPart<int64_t>&, const Plan&, int64_t, const Requests<int64_t>&, int64_t,
                        ObjectPool<Scratch<int64_t>>&);
template OpenAnswers answer_open(const OwnPart<int32_t>&, const Plan&, int64_t, const Requests<int32_t>&,
                                 int64_t, ObjectPool<Scratch<int32_t>>&);
template OpenAnswers answer_open(const OwnPart<int64_t>&, const Plan&, int64_t, const Requests<int64_t>&,
                                 int64_t, ObjectPool<Scratch<int64_t>>&);

}  // namespace pyg_batchgnn
