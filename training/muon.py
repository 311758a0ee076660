"""The optimizers: Muon for the matrices inside layers, AdamW for the embedding, norms and biases."""
from pathlib import Path

import torch

from decoder import Decoder

# Quintic Newton-Schulz iteration; source: Jordan et al., "Muon: an optimizer for hidden layers", 2024.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def multiplies_bf16() -> bool:
    """Whether the CPU has products of bf16; without, they take many times as long as those of f32."""
    try:
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


PRODUCTS = torch.bfloat16 if multiplies_bf16() else torch.float32


def orthogonalize(x: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The nearest matrices with singular values of about one, of a stack [n, rows, cols]; bf16 is exact enough."""
    a, b, c = COEFFICIENTS
    wide = x.shape[1] <= x.shape[2]
    y = (x if wide else x.mT).to(PRODUCTS)
    y = y / (y.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(PRODUCTS)
    for _ in range(steps):
        gram = y @ y.mT
        y = a * y + (b * gram + c * (gram @ gram)) @ y
    return (y if wide else y.mT).float()


def matrices(x: torch.Tensor, rows: slice) -> torch.Tensor:
    """These rows of a matrix, or of each of a stack: a view [n, rows, cols]."""
    return x.view(-1, *x.shape[-2:])[:, rows]


class Muon:
    """Momentum, made orthogonal. Matrices of one shape are updated together, joined ones by their parts."""

    def __init__(self, model: Decoder, momentum: float = 0.95, decay: float = 0.05):
        self.momentum, self.decay, split = momentum, decay, model.parts
        by_shape: dict[tuple, list[tuple[torch.nn.Parameter, slice]]] = {}
        for layer in model.layers:
            for name, p in layer.named_parameters():
                if p.dim() > 1:
                    at = 0
                    for rows in split.get(name, [p.shape[-2]]):
                        by_shape.setdefault((rows, p.shape[-1]), []).append((p, slice(at, at + rows)))
                        at += rows
        self.groups = list(by_shape.values())
        self.state = [torch.zeros_like(torch.cat([matrices(p, part) for p, part in g])) for g in self.groups]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for group, velocity in zip(self.groups, self.state):
            grad = torch.cat([matrices(p.grad, part) for p, part in group])
            velocity.lerp_(grad, 1 - self.momentum)
            update = orthogonalize(grad.lerp(velocity, self.momentum))
            scale = max(1, update.shape[1] / update.shape[2]) ** 0.5
            at = 0
            for p, part in group:
                some = matrices(p, part)
                some.mul_(1 - lr * self.decay).add_(update[at : at + len(some)], alpha=-lr * scale)
                at += len(some)


class Optimizer:
    """Both, with one learning rate schedule: `step(factor)` takes a step of `factor` times the peak rates."""

    def __init__(self, model: Decoder, lr: float, adam_lr: float, clip: float = 1.0):
        self.lr, self.adam_lr, self.clip, self.parameters = lr, adam_lr, clip, list(model.parameters())
        self.muon = Muon(model)
        self.others = [model.token_embd] + [p for p in self.parameters if p.dim() == 1]
        self.adam = torch.optim.AdamW(self.others, lr=adam_lr, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, foreach=True)

    def step(self, factor: float) -> float:
        """Returns the norm of the gradient, which is set to zero."""
        self.muon.step(self.lr * factor)
        norm = torch.nn.utils.clip_grad_norm_(self.others, self.clip)
        self.adam.param_groups[0]["lr"] = self.adam_lr * factor
        self.adam.step()
        for p in self.parameters:
            p.grad.zero_()
        return float(norm)

    def state_dict(self) -> dict:
        return {"muon": self.muon.state, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        for mine, saved in zip(self.muon.state, state["muon"], strict=True):
            mine.copy_(saved)
        self.adam.load_state_dict(state["adam"])
