"""Keys, values and commands that are gone, each with what to write instead; one line of a message for each."""

REMOVED: dict[str, str] = {
    "--wandb FOLDER": "offline runs are no longer read; upload them by `wandb sync`, then write ENTITY/PROJECT",
    "companions": "is no longer a key; write settings behind a level: 'norm=ln,dyt(model.scale_embeddings=true)'",
    "ablate catalogue": "is no longer a command; write ablate help GROUP, or read docs/catalogue.md",
    "ablate diff": "is no longer a command; compare the config.yaml of the two runs with diff",
    "ablate evaluate": "is no longer a command; repeat the study's command with eval.lengths=[64,128]",
    "ablate status --all": "is no longer an option; write ablate studies",
    "ablate studies compare": "is no longer an action; write ablate analyse STUDY for each of the two studies",
    "ablate studies rename": "is no longer an action; write study=NEW in the study's command, which reuses its runs",
    "design=fractional": "fractional is no longer a design; write grid or one_at_a_time",
    "reuse=any": "any is no longer a choice; leave it out: runs of other code are trained again",
    "hold": "is no longer a key; write the setting for all, as in ffn.bias=true",
    "figure: looks": "is no longer a figure; leave it out",
    "figure: main_effects": "is no longer a figure; write effects",
    "figure: proxy": "is no longer a figure; write claims",
    "match=seconds": "seconds is no longer a choice; write match=flops_total",
    "placebo_seeds": "is no longer a key; leave it out: seeds=8, say, shows the noise of every effect",
    "reference": "is no longer a key; write the level to compare with first, as in norm=rms,ln",
    "seed.placebo": "is no longer a key; write seed.init=0 or seed.data=0 to fix a part of the randomness",
    "tune.per_seed": "is no longer a key; leave it out, and write tune.seeds=4, say, for a surer choice",
    "attention.key_bias": "is no longer a key; write attention.bias=true, for all four projections",
    "attention.out_bias": "is no longer a key; write attention.bias=true, for all four projections",
    "attention.qk_norm_after": "is no longer a key; leave it out: the norm is applied before the rotation",
    "attention.query_bias": "is no longer a key; write attention.bias=true, for all four projections",
    "attention.value_bias": "is no longer a key; write attention.bias=true, for all four projections",
    "ffn.gates=inputs": "is no longer a value; write ffn.gates=plain",
    "ffn.shared_gate": "is no longer a key; leave it out",
    "ffn=relu": "is no longer a variant; write ffn=mlp",
    "model.head_bias": "is no longer a key; leave it out",
    "model.transform_bias": "is no longer a key; leave it out",
    "position.cut": "is no longer a key; leave it out",
    "position.offset": "is no longer a key; leave it out",
    "position.scale": "is no longer a key; leave it out",
    "preset=gptj": "is no longer a preset; write +preset=gpt_neox residual.norms=shared",
    "preset=hunyuan": "is no longer a preset; write +preset=qwen3",
    "preset=llama4": "is no longer a preset; write +preset=llama attention=3chunked+gqa+...",
    "preset=modernbert": "is no longer a preset; write +preset=bert residual=pre ffn=geglu position=rope",
    "preset=phi": "is no longer a preset; write +preset=gpt_neox residual.norms=shared position.share=0.5",
    "preset=qwen2": "is no longer a preset; write +preset=qwen3 attention=gqa attention.bias=true",
    "preset=qwen2_moe": "is no longer a preset; write +preset=mixtral attention=mha attention.bias=true ffn.shared=2",
    "preset=xglm": "is no longer a preset; write +preset=gpt2 position=sinusoidal model.scale_embeddings=true",
    "wandb.mode": "is no key; write track=none for no W&B, track=wandb for W&B",
    "residual.first_norm": "is no longer a key; leave it out",
}


def removed(word: str) -> str | None:
    """What to write instead of a word that is gone; None for any other word.  Words are a key (`hold`), a value
    (`match=seconds`), a command (`ablate diff`), an option, or a figure of a study file (`figure: proxy`)."""
    return REMOVED.get(word)
