# Adds the decoder's flags to `model`, and sets `in_decoder`, a part of the name of the run's folder. Source this file after kinds.sh.
in_decoder=
if [[ -n ${DECODER_DEPTH:-} ]]; then
    model+=(--decoder-layers "$DECODER_DEPTH")
    in_decoder=-decoder-$DECODER_DEPTH
fi
if [[ ${DECODER_FROZEN:-0} != 0 ]]; then
    [[ -n $type ]] || die "DECODER_FROZEN=$DECODER_FROZEN: needs KIND=T, F, G or C"
    model+=(--reservoir-decoder-count "$DECODER_FROZEN")
    in_decoder+=-frozen-$DECODER_FROZEN
fi
