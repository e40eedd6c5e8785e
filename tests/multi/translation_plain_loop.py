"""Translation in a plain loop, no Trainer: seven device mistakes."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS, WIDTH, LENGTH = 11, 8, 5
FREQUENCY = torch.arange(1.0, WORDS + 1)  # BUG 4: torch.log(FREQUENCY) | FREQUENCY
# FIX 4: FREQUENCY = torch.arange(1.0, WORDS + 1, device="cuda")


def sinusoid(length, width):
    """The usual positional encoding."""
    place = torch.arange(length)[:, None] / 10.0 ** (torch.arange(width) / width)
    return torch.sin(place + math.pi / 2 * (torch.arange(width) % 2))


class Translator(nn.Module):
    """A recurrent encoder and one layer of causal attention over it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.positions = sinusoid(LENGTH, WIDTH)  # BUG 1: self.positions
        # FIX 1: self.register_buffer("positions", sinusoid(LENGTH, WIDTH))
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, source):
        words = F.dropout(self.embedding(source) + self.positions, 0.2)
        hidden = torch.zeros(1, len(source), WIDTH)  # BUG 2: hidden
        # FIX 2: hidden = torch.zeros(1, len(source), WIDTH, device=source.device)
        states, _ = self.encoder(words, hidden)
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()  # BUG 3: causal
        # FIX 3: causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=source.device).tril()
        return self.head(F.scaled_dot_product_attention(words, states, states, attn_mask=causal))


def main():
    """Train, and count the right words of each epoch."""
    device = torch.device("cuda")
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, WORDS, (12, LENGTH)), torch.randint(0, WORDS, (12, LENGTH)))
    model = Translator().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    average = torch.zeros(LENGTH)  # BUG 5: average
    # FIX 5: average = torch.zeros(LENGTH, device=device)
    for source, target in DataLoader(data, batch_size=4):
        source = source.to(device)
        logits = model(source) + torch.log(FREQUENCY)
        losses = F.cross_entropy(logits.movedim(2, 1), target, reduction="none")  # BUG 6: target
        # FIX 6: losses = F.cross_entropy(logits.movedim(2, 1), target.to(device), reduction="none")
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.mul_(0.9).add_(losses.detach().mean(0), alpha=0.1)
        best = logits.argmax(-1)
        right = (best.numpy() == target.numpy()).mean()  # BUG 7: best
        # FIX 7: right = (best.cpu().numpy() == target.numpy()).mean()
        print("loss", loss.item().hex(), average.sum().item().hex(), right)


if __name__ == "__main__":
    main()
