"""BERT, and the encoder-decoders: torch's own, BART and T5."""

from collections.abc import Callable
from typing import Any

import torch
from parity.compare import CONTEXT, DIM, HEADS, LAYERS, VOCAB, Family, Weights, renamed, split, table
from parity.decoders import GATED, NO_SPECIAL, OUT_PROJ, WIDE, built, made
from torch import Tensor, nn


def read(reference: nn.Module, inputs: Weights) -> Tensor:
    """An encoder's logits."""
    return reference(input_ids=inputs["tokens"], attention_mask=inputs["mask"]).logits


def translate(reference: nn.Module, inputs: Weights) -> Tensor:
    """An encoder-decoder's logits."""
    names = {"source": "input_ids", "source_mask": "attention_mask", "tokens": "decoder_input_ids"}
    names |= {"mask": "decoder_attention_mask"}
    return reference(**{names[key]: value for key, value in inputs.items()}, use_cache=False).logits


PARTS = {f"self.{name}": f"attention.{name}" for name in ("query", "key", "value")}
BERT_BLOCK = {f"attention.{theirs}": ours for theirs, ours in PARTS.items()}
BERT_BLOCK |= {"attention.output.dense": "attention.out", "attention.output.LayerNorm": "norms.0"}
BERT_BLOCK |= {"intermediate.dense": "ffn.up", "output.dense": "ffn.down", "output.LayerNorm": "norms.1"}
BERT_TOP = {"word_embeddings": "embed", "position_embeddings": "position.table", "token_type_embeddings": "segment"}
BERT_TOP = {f"embeddings.{k}": v for k, v in (BERT_TOP | {"LayerNorm": "embed_norm"}).items()}
BERT = table("bert.", "encoder.layer", BERT_BLOCK, BERT_TOP) | {"cls.predictions": "head"}
BERT |= {"cls.predictions.transform.dense": "head.transform", "cls.predictions.transform.LayerNorm": "head.norm"}
ALBERT_BLOCK = {f"attention.{name}": f"attention.{name}" for name in ("query", "key", "value")}
ALBERT_BLOCK |= {"attention.dense": "attention.out", "attention.LayerNorm": "norms.0"}
ALBERT_BLOCK |= {"ffn": "ffn.up", "ffn_output": "ffn.down", "full_layer_layer_norm": "norms.1"}
ALBERT = {
    f"albert.encoder.albert_layer_groups.{{}}.albert_layers.0.{k}": f"blocks.0.{v}" for k, v in ALBERT_BLOCK.items()
}
ALBERT |= {k.replace("bert.", "albert."): v for k, v in BERT.items() if ".embeddings." in k}
ALBERT |= {"albert.encoder.embedding_hidden_mapping_in": "widen", "predictions": "head"}
ALBERT |= {"predictions.dense": "head.transform", "predictions.LayerNorm": "head.norm"}
ELECTRA = {k.replace("bert.", "electra."): v for k, v in BERT.items() if k.startswith("bert.")}
ELECTRA |= {"electra.embeddings_project": "widen", "generator_lm_head": "head"}
ELECTRA |= {"generator_predictions.dense": "head.transform", "generator_predictions.LayerNorm": "head.norm"}
ROBERTA = {k.replace("bert.", "roberta."): v for k, v in BERT.items() if k.startswith("bert.")}
ROBERTA |= {"lm_head": "head", "lm_head.dense": "head.transform", "lm_head.layer_norm": "head.norm"}


def with_segment(names: dict[str, str]) -> Callable[[Weights], Weights]:
    """BERT and its kin: all tokens are of the first segment, whose vector is a part of every position's."""

    def weights(theirs: Weights) -> Weights:
        found = renamed(theirs, names)
        segment, positions = found.pop("segment.weight"), found["position.table.weight"]
        return found | {"position.table.weight": positions + segment[0]}

    return weights


def read_from_zero(reference: nn.Module, inputs: Weights) -> Tensor:
    """RoBERTa's logits with positions that count padding, too, from the first row of its table."""
    positions = torch.arange(inputs["tokens"].shape[1])[None]
    return reference(input_ids=inputs["tokens"], attention_mask=inputs["mask"], position_ids=positions).logits


BART_BLOCK = OUT_PROJ | {k.replace("self_", "encoder_"): f"cross_{v}" for k, v in OUT_PROJ.items() if "self" in k}
BART_BLOCK |= {"encoder_attn_layer_norm": "norms.1"}
BART = {
    f"model.{stack}.layers.{{}}.{theirs}": f"{stack}.blocks.{{}}.{ours}"
    for stack in ("encoder", "decoder")
    for theirs, ours in (BART_BLOCK | {"final_layer_norm": f"norms.{1 if stack == 'encoder' else 2}"}).items()
}
for stack in ("encoder", "decoder"):
    BART[f"model.{stack}.embed_positions"] = f"{stack}.position.table"
    BART[f"model.{stack}.layernorm_embedding"] = f"{stack}.embed_norm"


def bart(weights: Weights) -> Weights:
    """BART's first two positions are never used."""
    found = renamed(weights, BART | {"model.shared": "embed"})
    return {name: weight[2:] if "position" in name else weight for name, weight in found.items()}


T5_BLOCK = {"q": "query", "k": "key", "v": "value", "o": "out"}
T5_BLOCK = {f"SelfAttention.{theirs}": f"attention.{ours}" for theirs, ours in T5_BLOCK.items()}
T5_BLOCK |= {k.replace("Self", "EncDec"): f"cross_{v}" for k, v in T5_BLOCK.items()}
T5_BLOCK |= {
    f"DenseReluDense.{k}": f"ffn.{v}" for k, v in {"wi": "up", "wi_0": "gate", "wi_1": "up", "wo": "down"}.items()
}
T5 = {
    f"{stack}.block.{{}}.layer.{i}.{theirs}": f"{stack}.blocks.{{}}.{ours}"
    for stack in ("encoder", "decoder")
    for i in range(3)
    for theirs, ours in (T5_BLOCK | {"layer_norm": f"norms.{i}"}).items()
}
for stack in ("encoder", "decoder"):
    T5[f"{stack}.block.{{}}.layer.0.SelfAttention.relative_attention_bias"] = f"{stack}.position.table"
    T5[f"{stack}.final_layer_norm"] = f"{stack}.final_norm"
T5 |= {"shared": "embed", "lm_head": "head"}


def t5(weights: Weights) -> Weights:
    """T5's tied head reads its last norm's output / √dim, which that norm's weight can say as well."""
    found = renamed(weights, T5)
    return found | {"decoder.final_norm.weight": found["decoder.final_norm.weight"] * DIM**-0.5}


def t5_v1_1(weights: Weights) -> Weights:
    """T5 1.1."""
    return renamed(weights, T5)


def t5_reference(**settings: Any) -> Callable[[], nn.Module]:
    """T5 with as many numbers per head as ours."""
    sizes = {"d_model": DIM, "d_kv": DIM // HEADS, "num_layers": LAYERS, "num_heads": HEADS, "dropout_rate": 0.0}
    common = {"vocab_size": VOCAB, "attn_implementation": "eager"} | NO_SPECIAL | sizes
    return lambda: built("T5ForConditionalGeneration", "T5Config", **common | settings)


def t5_v1_1_reference() -> nn.Module:
    """T5 1.1 with a head of its own: `transformers` ties it in any case, though the family is not tied."""
    gated = {"d_ff": GATED, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    model = t5_reference(**gated, relative_attention_max_distance=20)()
    model.lm_head = nn.Linear(DIM, VOCAB, bias=False)
    return model


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between embeddings with sines and a tied head.

    Its stacks are built without the norm that it puts after each by default, which the paper's post-norm has no use
    for: there the last norm of the last layer is the stack's.
    """

    def __init__(self) -> None:
        super().__init__()
        settings: dict[str, Any] = {"dim_feedforward": WIDE, "dropout": 0.0, "batch_first": True}
        encoder, decoder = (
            layer(DIM, HEADS, **settings) for layer in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
        )
        stacks = {
            "custom_encoder": nn.TransformerEncoder(encoder, LAYERS, enable_nested_tensor=False),
            "custom_decoder": nn.TransformerDecoder(decoder, LAYERS),
        }
        self.embed = nn.Embedding(VOCAB, DIM)
        self.transformer = nn.Transformer(DIM, HEADS, batch_first=True, **stacks)  # type: ignore[arg-type]
        angles = torch.arange(CONTEXT).double()[:, None] / 10000 ** (torch.arange(0, DIM, 2).double() / DIM)
        self.register_buffer("sines", torch.zeros(CONTEXT, DIM, dtype=torch.float64))
        self.sines[:, 0::2], self.sines[:, 1::2] = angles.sin(), angles.cos()

    def forward(self, source: Tensor, tokens: Tensor, source_mask: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, T, vocab)."""
        read, written = (self.embed(ids) * DIM**0.5 + self.sines[: ids.shape[1]] for ids in (source, tokens))
        x = self.transformer(
            read,
            written,
            tgt_mask=torch.ones(2 * tokens.shape[1:], dtype=torch.bool).triu(1),
            src_key_padding_mask=source_mask == 0,
            tgt_key_padding_mask=mask == 0,
            memory_key_padding_mask=source_mask == 0,
        )
        return x @ self.embed.weight.T


TORCH_BLOCK = {"self_attn.out_proj": "attention.out", "multihead_attn.out_proj": "cross_attention.out"}
TORCH_BLOCK |= {"linear1": "ffn.up", "linear2": "ffn.down"}
TORCH_BLOCK |= {"norm1": "norms.0", "norm2": "norms.1", "norm3": "norms.2"}
TORCH = {
    f"transformer.{stack}.layers.{{}}.{theirs}": f"{stack}.blocks.{{}}.{ours}"
    for stack in ("encoder", "decoder")
    for theirs, ours in TORCH_BLOCK.items()
}


def transformer(weights: Weights) -> Weights:
    """torch's attention holds queries, keys and values in one matrix."""
    dotted = {n.replace("attn.in_proj_", "attn.in_proj."): w for n, w in weights.items()}
    table = TORCH | {
        k.replace("out_proj", "in_proj"): v.replace(".out", ".fused") for k, v in TORCH.items() if "out_" in k
    }
    return split(renamed(dotted, table | {"embed": "embed"}), "fused", lambda w: w.chunk(3))


BERT_SIZES = {"intermediate_size": WIDE, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BART_SIZES = {
    f"{stack}_{key}": value
    for stack in ("encoder", "decoder")
    for key, value in (("layers", LAYERS), ("ffn_dim", WIDE), ("attention_heads", HEADS))
}
BART_SIZES |= {"d_model": DIM, "dropout": 0.0, "forced_eos_token_id": None, "decoder_start_token_id": None}


def of_bert(preset: str, kind: str, names: dict[str, str], reads: Any = read, **settings: Any) -> Family:
    """BERT and its kin, by the name that their models and configurations begin with."""
    reference = made(f"{kind}ForMaskedLM", f"{kind}Config", **BERT_SIZES, **settings)
    return Family(preset, reference, reads, with_segment(names), "mlm")


BART_MODEL = made("BartForConditionalGeneration", "BartConfig", **BART_SIZES)
NEAR = ("position.max_distance=20",)  # within these lengths, so that the last bucket holds several distances

ENCODERS = {
    "transformer": Family("transformer", TorchTransformer, lambda made, inputs: made(**inputs), transformer, "seq2seq"),
    "bert": of_bert("bert", "Bert", BERT),
    "roberta": of_bert("roberta", "Roberta", ROBERTA, read_from_zero, layer_norm_eps=1e-5),
    "albert": of_bert("albert", "Albert", ALBERT, embedding_size=16, hidden_act="gelu"),
    "electra": of_bert("electra", "Electra", ELECTRA, embedding_size=16),
    "bart": Family("bart", BART_MODEL, translate, bart, "seq2seq"),
    "t5": Family("t5", t5_reference(d_ff=WIDE), translate, t5, "seq2seq"),
    "t5_v1_1": Family("t5_v1_1", t5_v1_1_reference, translate, t5_v1_1, "seq2seq", overrides=NEAR),
}
