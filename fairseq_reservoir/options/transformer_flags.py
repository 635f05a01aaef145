"""The names of the flags of fairseq's transformer, for ``--help``. A test compares them with the installed fairseq."""

TRANSFORMER = tuple(
    """
    activation_fn dropout attention_dropout activation_dropout adaptive_input encoder_embed_path encoder_embed_dim
    encoder_ffn_embed_dim encoder_layers encoder_attention_heads encoder_normalize_before encoder_learned_pos
    encoder_layerdrop encoder_layers_to_keep encoder_xformers_att_config max_source_positions decoder_embed_path
    decoder_embed_dim decoder_ffn_embed_dim decoder_layers decoder_attention_heads decoder_normalize_before
    decoder_learned_pos decoder_layerdrop decoder_layers_to_keep decoder_xformers_att_config decoder_output_dim
    max_target_positions share_decoder_input_output_embed share_all_embeddings merge_src_tgt_embed
    no_token_positional_embeddings adaptive_softmax_cutoff adaptive_softmax_dropout adaptive_softmax_factor
    layernorm_embedding tie_adaptive_weights tie_adaptive_proj no_scale_embedding checkpoint_activations
    offload_activations no_cross_attention cross_self_attention quant_noise_pq quant_noise_pq_block_size
    quant_noise_scalar min_params_to_wrap char_inputs relu_dropout base_layers base_sublayers base_shuffle export
    no_decoder_final_norm
    """.split()
)
