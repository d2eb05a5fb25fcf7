# SPDX-License-Identifier: Apache-2.0
# A text file as a C string constant: cmake -DINPUT=… -DOUTPUT=… -DSYMBOL=… -P EmbedText.cmake
# Bytes as numbers, because string literals have a length limit.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
       bytes "${bytes}")
file(WRITE ${OUTPUT} "extern const char ${SYMBOL}[];\nconst char ${SYMBOL}[] = {\n${bytes}0x00};\n")
