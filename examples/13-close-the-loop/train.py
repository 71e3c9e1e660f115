"""A small network on 4 workers; `loop.py` starts it."""

import torch
import torch.distributed as dist
from torch import nn

import allrail.torch as art

WIDTH, DEPTH, BATCH, STEPS = 512, 6, 16, 40

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model, optimizer = art.schedule(model, optimizer)
for _ in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(BATCH, WIDTH)).square().mean().backward()
    optimizer.step()
art.synchronize()
art.release(model)
dist.destroy_process_group()
