"""Trains a small transformer on tokens: the rows around each customer of a generated shop.

    python examples/tokens.py

A customer's label, whether one of the recent orders was of a certain category, follows from rows
two keys away and from their times. The loader samples by time, and hands out the first 24 rows
around each customer as [S, K] tensors, which `nn.TransformerEncoder` takes. It takes some seconds
on one core and downloads nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.transforms import ToUndirected

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.sample import Tokens

CUSTOMERS, ITEMS, ORDERS, CATEGORIES, DAYS = 600, 80, 9000, 5, 1000
TOKENS, RECENT, HIDDEN, EPOCHS = 24, 200, 32, 4


def make_data() -> tuple[HeteroData, Tensor, Tensor, Tensor]:
    """Returns a shop, and seeds: customers, times and labels."""
    draw, shop = torch.Generator().manual_seed(0), HeteroData()
    shop["customer"].x = torch.randn(CUSTOMERS, 4, generator=draw)
    category = torch.randint(CATEGORIES, (ITEMS,), generator=draw)
    shop["item"].x = F.one_hot(category, CATEGORIES).float()
    shop["order"].x = torch.rand(ORDERS, 2, generator=draw)
    shop["order"].time = torch.randint(DAYS, (ORDERS,), generator=draw)
    buyer = torch.randint(CUSTOMERS, (ORDERS,), generator=draw)
    bought = torch.randint(ITEMS, (ORDERS,), generator=draw)
    rows = torch.arange(ORDERS)
    shop["order", "by", "customer"].edge_index = torch.stack([rows, buyer])
    shop["order", "of", "item"].edge_index = torch.stack([rows, bought])
    customer = torch.arange(CUSTOMERS).repeat(4)
    time = torch.randint(DAYS // 2, DAYS, (len(customer),), generator=draw)
    is_wanted = category[bought] == 0
    label = torch.zeros(len(customer), dtype=torch.int64)
    for seed, (who, now) in enumerate(zip(customer.tolist(), time.tolist(), strict=True)):
        age = now - shop["order"].time
        label[seed] = int((is_wanted & (buyer == who) & (age >= 0) & (age < RECENT)).any())
    undirected: HeteroData = ToUndirected(merge=False)(shop)
    return undirected, customer, time, label


class Transformer(nn.Module):
    """Two layers of attention over the tokens of each seed; the seed's own token is read."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.features = nn.ModuleDict({name: nn.LazyLinear(HIDDEN) for name in data.node_types})
        self.relation = nn.Embedding(len(data.edge_types) + 1, HIDDEN)
        self.hop, self.time = nn.Embedding(4, HIDDEN), nn.Linear(2, HIDDEN)
        layer = nn.TransformerEncoderLayer(
            HIDDEN, 4, 2 * HIDDEN, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(HIDDEN, 2)

    def embedded(self, batch: HeteroData, tokens: Tokens) -> Tensor:
        """Returns [S, K, HIDDEN]. Padding is -1, so that one is added to what is looked up."""
        rows = torch.zeros(*tokens.mask.shape, HIDDEN)
        for number, name in enumerate(batch.node_types):
            of_type = tokens.type == number
            rows[of_type] = self.features[name](batch[name].x[tokens.node[of_type]])
        age = tokens.time.float()[..., None]
        rows = rows + self.time(torch.cat([age / DAYS, (-age / RECENT).exp()], dim=-1))
        return rows + self.hop(tokens.hop + 1) + self.relation(tokens.relation + 1)

    def forward(self, batch: HeteroData) -> Tensor:
        """Returns [S, 2], one row per seed."""
        tokens = batch.tokens
        rows = self.embedded(batch, tokens)
        # A token also knows the one from which it was reached.
        parent = tokens.parent.clamp(min=0)[..., None].expand_as(rows)
        rows = rows + rows.gather(1, parent) * (tokens.parent >= 0)[..., None]
        out: Tensor = self.out(self.layers(rows, src_key_padding_mask=~tokens.mask)[:, 0])
        return out


def main() -> None:
    """Trains, and prints one line per epoch."""
    torch.manual_seed(0)
    data, customer, time, label = make_data()
    is_test = torch.arange(len(customer)) % 4 == 0

    def make_loader(chosen: Tensor, shuffle: bool = False) -> MacrobatchNeighborLoader:
        return MacrobatchNeighborLoader(
            data,
            num_neighbors=[8, 4],
            input_nodes=("customer", customer[chosen]),
            input_time=time[chosen],
            time_attr="time",
            temporal_strategy="last",
            tokens=TOKENS,
            batch_size=32,
            seed=0,
            shuffle=shuffle,
        )

    loader, test_loader = make_loader(~is_test, True), make_loader(is_test)
    model = Transformer(data)
    model(next(iter(test_loader)))  # the linear layers learn the widths of features
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    count = later = 0
    for epoch in range(1, EPOCHS + 1):
        losses, correct = [], []
        for batch in loader:
            loss = F.cross_entropy(model(batch), label[~is_test][batch["customer"].input_id])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            count, later = count + int(batch.tokens.mask.sum()), later + int((batch.tokens.time < 0).sum())
        for batch in test_loader:
            with torch.no_grad():
                right = model(batch).argmax(dim=1) == label[is_test][batch["customer"].input_id]
            correct.append(right.float())
        accuracy = torch.cat(correct).mean()
        print(f"epoch {epoch}  loss {sum(losses) / len(losses):.4f}  test accuracy {accuracy:.4f}")
    print(f"{count:,} tokens of {len(customer):,} seeds, {later} later than their seed")


if __name__ == "__main__":
    main()
