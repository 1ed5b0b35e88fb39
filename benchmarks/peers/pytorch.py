"""PyTorch with torch.compile, fused attention and CUDA graphs, on a GPU.

Training is compiled, with autocast to bfloat16, float32 weights and fused Adam.
Decoding has bfloat16 weights and a static key/value cache; its compiled steps are
recorded in one CUDA graph, so that launching kernels costs next to nothing.

Not equal: no padding mask, since no token is padding; searches count steps, and never
ask whether all sentences have ended; the beam has no length penalty, which changes
nothing where all hypotheses are equally long. Variants: `compile` and `eager`, which
neither compiles nor records.
"""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from peers.turns import take_turns
from peers.workloads import (
    DROPOUT,
    END_ID,
    LABEL_SMOOTHING,
    LEARNING_RATE,
    PAD_ID,
    START_ID,
    MatrixProduct,
)
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPSILON = 1e-6  # of the normalisations, as here


class Attention(nn.Module):
    """Attention of several heads."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)

    def project(self, states, first, end):
        """Projects to those of (queries, keys, values), as one product.

        (batch, length, heads * dim) -> (batch, heads, length, dim) for each.
        """
        rows = slice(first * states.shape[-1], end * states.shape[-1])
        weight, bias = (
            self.query_key_value.weight[rows],
            self.query_key_value.bias[rows],
        )
        projected = F.linear(states, weight, bias).chunk(end - first, dim=-1)
        return [
            x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected
        ]

    def attend(self, queries, keys, values, mask=None, is_causal=False):
        heads = F.scaled_dot_product_attention(
            queries, keys, values, mask, is_causal=is_causal
        )
        return self.output(heads.transpose(1, 2).flatten(-2))

    def forward(self, states, memory=None, is_causal=False):
        """Attends to the memory, or else to the states."""
        if memory is None:
            return self.attend(*self.project(states, 0, 3), is_causal=is_causal)
        return self.attend(*self.project(states, 0, 1), *self.project(memory, 1, 3))


class Residual(nn.Module):
    """Dropout, the sum and its normalisation, in the dtype of the outputs."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, EPSILON)

    def forward(self, states, outputs):
        states = states + F.dropout(outputs, DROPOUT, self.training)
        # Autocast normalises in float32.
        return self.norm(states).to(outputs.dtype)


class FeedForward(nn.Module):
    def __init__(self, dim, intermediate_dim):
        super().__init__()
        self.widen = nn.Linear(dim, intermediate_dim)
        self.narrow = nn.Linear(intermediate_dim, dim)
        self.residual = Residual(dim)

    def forward(self, states):
        return self.residual(states, self.narrow(F.relu(self.widen(states))))


class EncoderLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.attention = Attention(size.hidden_dim, size.num_heads)
        self.residual = Residual(size.hidden_dim)
        self.feed_forward = FeedForward(size.hidden_dim, size.intermediate_dim)

    def forward(self, states):
        return self.feed_forward(self.residual(states, self.attention(states)))


class DecoderLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim = size.hidden_dim
        self.attention, self.residual = Attention(dim, size.num_heads), Residual(dim)
        self.cross_attention = Attention(dim, size.num_heads)
        self.cross_residual = Residual(dim)
        self.feed_forward = FeedForward(dim, size.intermediate_dim)

    def forward(self, states, memory):
        states = self.residual(states, self.attention(states, is_causal=True))
        attended = self.cross_attention(states, memory)
        return self.feed_forward(self.cross_residual(states, attended))

    def step(self, states, cache, cross, index, mask):
        """Decodes one position of every hypothesis, and writes it into the cache.

        Args:
            states: Of shape (sentences * hypotheses, 1, dim).
            cache: Keys and values, (sentences * hypotheses, heads, positions, dim).
            cross: Keys and values, (sentences, heads, source length, dim), which the
                hypotheses of a sentence share.
            index: The position, of shape (1,).
            mask: Which positions are visible, (1, 1, 1, positions).
        """
        queries, *keys_and_values = self.attention.project(states, 0, 3)
        for kept, new in zip(cache, keys_and_values, strict=True):
            kept[:, :, index] = new
        attended = self.attention.attend(queries, *cache, mask)
        states = self.residual(states, attended)
        shared = states.view(len(cross[0]), -1, states.shape[-1])
        queries = self.cross_attention.project(shared, 0, 1)
        attended = self.cross_attention.attend(*queries, *cross).view_as(states)
        return self.feed_forward(self.cross_residual(states, attended))


class Transformer(nn.Module):
    """Encoder and decoder with one embedding table; `dtype` is that of the states."""

    def __init__(self, size, max_length, dtype):
        super().__init__()
        self.dtype = dtype
        self.table = nn.Parameter(torch.empty(size.vocabulary_size, size.hidden_dim))
        nn.init.normal_(self.table, std=size.hidden_dim**-0.5)
        positions = sinusoids(max_length, size.hidden_dim)
        self.register_buffer("positions", torch.from_numpy(positions))
        self.encoder = nn.ModuleList(EncoderLayer(size) for _ in range(size.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(size) for _ in range(size.num_layers))

    def embed(self, ids, positions):
        states = F.embedding(ids, self.table) * self.table.shape[1] ** 0.5 + positions
        return F.dropout(states.to(self.dtype), DROPOUT, self.training)

    def encode(self, source):
        states = self.embed(source, self.positions[: source.shape[1]])
        for layer in self.encoder:
            states = layer(states)
        return states

    def forward(self, source, target):
        memory = self.encode(source)
        states = self.embed(target, self.positions[: target.shape[1]])
        for layer in self.decoder:
            states = layer(states, memory)
        return F.linear(states, self.table)

    def cross(self, source):
        """The keys and values of each layer's cross-attention, once for all steps."""
        memory = self.encode(source)
        return [x.cross_attention.project(memory, 1, 3) for x in self.decoder]

    def step(self, ids, caches, cross, index):
        """Returns float32 logits (rows, vocabulary) after the tokens `ids`, (rows,)."""
        states = self.embed(ids[:, None], self.positions[index])
        positions = torch.arange(caches[0][0].shape[2], device=ids.device)
        mask = (positions <= index)[None, None, None]
        for layer, cache, of_layer in zip(self.decoder, caches, cross, strict=True):
            states = layer.step(states, cache, of_layer, index, mask)
        return F.linear(states[:, 0], self.table).float()


def sinusoids(length, dim):
    rates = 10000.0 ** -(np.arange(0, dim, 2) / dim)
    angles = np.arange(length)[:, None] * rates
    waves = np.stack([np.sin(angles), np.cos(angles)], -1)
    return waves.reshape(length, dim).astype("float32")


def prepare(workload, variant):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if isinstance(workload, MatrixProduct):
        return prepare_product(workload)
    return (prepare_training if workload.trains else prepare_decoding)(
        workload, variant == "compile"
    )


def prepare_product(product):
    shape = (product.side, product.side)
    left, right, result = (
        torch.randn(shape, dtype=torch.bfloat16, device=DEVICE) for _ in range(3)
    )

    def work():
        for _ in range(product.repeats):
            torch.matmul(left, right, out=result)
        synchronize()

    return work


def prepare_training(workload, compiles):
    longest = max(workload.source_length, workload.target_length)
    model = Transformer(workload.size, longest, torch.bfloat16).to(DEVICE)
    adam = torch.optim.Adam(
        model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    ids = [torch.from_numpy(x).long() for x in workload.random_ids()]
    if DEVICE == "cuda":
        ids = [x.pin_memory() for x in ids]
    batches = list(zip(*(x.split(workload.batch_size) for x in ids), strict=True))

    def loss_of(source, target):
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(source, target[:, :-1]).flatten(0, 1)
            labels = target[:, 1:].flatten()
            return F.cross_entropy(logits, labels, label_smoothing=LABEL_SMOOTHING)

    if compiles:
        loss_of = torch.compile(loss_of, dynamic=False)

    def work():
        for batch in batches:
            loss = loss_of(*(x.to(DEVICE, non_blocking=True) for x in batch))
            loss.backward()
            adam.step()
            adam.zero_grad()
        assert math.isfinite(loss.item())
        synchronize()

    return work


def prepare_decoding(workload, compiles):
    longest = max(workload.source_length, workload.target_length)
    model = Transformer(workload.size, longest, torch.bfloat16)
    model = model.to(DEVICE, torch.bfloat16).eval()
    source, _ = workload.random_ids()
    search = make_search(model, workload, compiles)
    shape = (workload.batch_size, workload.target_length)

    def work():
        ids = search(source)
        assert ids.shape == shape
        assert np.all(ids != END_ID)

    return work


def make_search(model, workload, compiles):
    """Returns a function from source ids to the best target ids, as NumPy arrays."""
    device = model.table.device
    source = torch.zeros(
        (workload.batch_size, workload.source_length), dtype=torch.int32, device=device
    )
    beam_width, length = workload.beam_width, workload.target_length
    search = BeamSearch if beam_width > 1 else GreedySearch
    run = search(model, len(source), length, beam_width, compiles).run
    if compiles and device.type == "cuda":
        run = recorded(run, source)

    @torch.no_grad()
    def find(ids):
        source.copy_(torch.from_numpy(ids))
        return run(source).cpu().numpy()  # waits for the GPU

    return find


@torch.no_grad()
def recorded(function, *arguments):
    """Returns a function that replays one call of `function` as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compiles, and lets libraries allocate
        for _ in range(3):
            function(*arguments)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(*arguments)

    def replay(*_):
        graph.replay()
        return result

    return replay


class GreedySearch:
    """Takes the likeliest token, `length` times.

    Args:
        model: A `Transformer`.
        num_sentences: Sentences of a batch.
        length: Tokens to produce.
        beam_width: Hypotheses of each sentence.
        compiles: Whether to compile the steps.
    """

    num_caches = 1

    def __init__(self, model, num_sentences, length, beam_width, compiles):
        self.model, self.length = model, length
        self.num_sentences, self.beam_width = num_sentences, beam_width
        self.settings = {"dtype": torch.int32, "device": model.table.device}
        heads = model.decoder[0].attention.num_heads
        head_dim = model.table.shape[1] // heads
        shape = (num_sentences * beam_width, heads, length, head_dim)
        # One tensor each: compiled code is slow to write to several views of one.
        self.caches = [
            [[model.table.new_zeros(shape) for _ in range(2)] for _ in model.decoder]
            for _ in range(self.num_caches)
        ]
        self.indices = [
            torch.tensor([index], device=model.table.device) for index in range(length)
        ]
        compiled = functools.partial(torch.compile, dynamic=False)
        self.reorder, self.take_step, self.cross = (
            compiled(function) if compiles else function
            for function in (reorder, self._take_step, model.cross)
        )

    def run(self, source):
        """Returns target ids, (sentences, length)."""
        cross = self.cross(source)
        ids = torch.full((self.num_sentences,), START_ID, **self.settings)
        outputs = []
        for index in self.indices:
            ids = self.take_step(ids, self.caches[0], cross, index)
            outputs.append(ids)
        return torch.stack(outputs, 1)

    def _take_step(self, ids, caches, cross, index):
        logits = self.model.step(ids, caches, cross, index)
        logits[:, PAD_ID] = logits[:, END_ID] = -torch.inf
        return logits.argmax(-1).int()


class BeamSearch(GreedySearch):
    """Keeps the likeliest sequences; `GreedySearch` has the arguments.

    Before each step, one set of caches gets the rows of the other, in the order of the
    hypotheses that live on.
    """

    num_caches = 2

    def run(self, source):
        cross = self.cross(source)
        old_caches, caches = self.caches
        shape = (self.num_sentences, self.beam_width)
        sequences = torch.zeros((*shape, self.length), **self.settings)
        ids = torch.full(shape, START_ID, **self.settings)
        # All would be equal, so only the first exists.
        scores = torch.zeros(shape, device=ids.device)
        scores[:, 1:] = -torch.inf
        parents = None
        for index in self.indices:
            if parents is not None:
                old_caches, caches = caches, old_caches
                self.reorder(old_caches, caches, parents)
            scores, sequences, ids, parents = self.take_step(
                scores, sequences, ids, caches, cross, index
            )
        return sequences[:, 0]

    def _take_step(self, scores, sequences, ids, caches, cross, index):
        logits = self.model.step(ids.flatten(), caches, cross, index)
        normalizer = logits.logsumexp(-1, keepdim=True)
        logits[:, PAD_ID] = logits[:, END_ID] = -torch.inf
        best_logits, best_ids = top_k_in_blocks(logits, self.beam_width)
        gains = (best_logits - normalizer).view(*scores.shape, self.beam_width)
        scores, places = (scores[..., None] + gains).flatten(1).topk(self.beam_width)
        parents = places // self.beam_width
        ids = best_ids.view(self.num_sentences, -1).gather(1, places).int()
        sequences = sequences.gather(1, parents[..., None].expand_as(sequences))
        is_here = torch.arange(self.length, device=ids.device) == index
        return scores, torch.where(is_here, ids[..., None], sequences), ids, parents


def reorder(old_caches, caches, parents):
    """Copies to `caches` what the `parents`, (sentences, hypotheses), have written."""
    num_sentences, beam_width = parents.shape
    first = torch.arange(num_sentences, device=parents.device)[:, None] * beam_width
    rows = (first + parents).flatten()
    for old_layer, layer in zip(old_caches, caches, strict=True):
        for old, new in zip(old_layer, layer, strict=True):
            new.copy_(old[rows])


def top_k_in_blocks(rows, count, block=160):
    """Returns the largest elements of each row and their places, as `topk` does.

    The blocks with the largest maxima hold them: this is faster on long rows.
    """
    block = math.gcd(rows.shape[1], block)
    blocks = rows.unflatten(1, (-1, block))
    best = blocks.amax(-1).topk(min(count, blocks.shape[1])).indices
    chosen = blocks.gather(1, best[..., None].expand(-1, -1, block))
    values, places = chosen.flatten(1).topk(count)
    return values, best.gather(1, places // block) * block + places % block


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    take_turns(prepare, ["torch"])
