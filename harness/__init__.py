"""The harness of `c128_256_512_compress`: cases -> inputs -> run -> byte diff -> timing -> score record -> board."""
