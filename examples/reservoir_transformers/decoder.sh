# Adds the decoder's flags to `model`, and sets `in_decoder`, a part of the run's folder. Source this file after kinds.sh.
in_decoder=
decoder_frozen=${DECODER_FROZEN:-0}
if [[ -n ${DECODER_DEPTH:-} ]]; then
    model+=(--decoder-layers "$DECODER_DEPTH")
    in_decoder=-decoder-$DECODER_DEPTH
fi
if [[ $decoder_frozen != 0 ]]; then
    [[ -n $type ]] || die "DECODER_FROZEN=$decoder_frozen: needs KIND=T, F, G or C"
    model+=(--reservoir-decoder-count "$decoder_frozen")
    in_decoder+=-frozen-$decoder_frozen
fi
