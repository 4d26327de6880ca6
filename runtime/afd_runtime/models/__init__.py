"""Hugging Face checkpoints -> the two sides of a disaggregated MoE model.

    folder (config.json, *.safetensors)
        |  checkpoint: names, shapes, memory-mapped reads
        |  registry:   architecture -> the family's file
        +--> attention side: embedding, attention, norms, router, dense layers, lm head   (every lane)
        +--> expert side:    the slice of each MoE layer's experts that one worker owns   (expert worker)

Each side reads its own tensors only. A new family is one file beside `qwen3_moe` and a line in
`registry`.
"""
