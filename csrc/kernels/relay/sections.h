// The places of an owner's answers: a section for each asking rank and relation.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/relay/answer.h"

namespace pyg_batchgnn {

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
        total += shapes_[relation].words(section.nodes, section.picks);
        picks += section.picks;
      }
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
  };

  Section& of(const Piece& piece) { return sections_[piece.peer * shapes_.size() + piece.relation]; }
  const Section& of(const Piece& piece) const {
    return sections_[piece.peer * shapes_.size() + piece.relation];
  }
  char* bytes_at(int64_t word) const { return reinterpret_cast<char*>(words_ + word); }

  // The last word of each of the three parts of a section may be written in part only. The other
  // bytes are set to zero.
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
};

}  // namespace pyg_batchgnn
