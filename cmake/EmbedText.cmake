# SPDX-License-Identifier: Apache-2.0
# A text file as a C string constant: cmake -DINPUT=… -DOUTPUT=… -DSYMBOL=… -P EmbedText.cmake
# Bytes as numbers, because string literals have a length limit. In SQL codes stand by their names (SqlCodes.cmake).
include(${CMAKE_CURRENT_LIST_DIR}/SqlCodes.cmake)
if(INPUT MATCHES "\\.sql$")
  file(READ ${INPUT} text)
  varve_sql_codes(text)
  string(HEX "${text}" hex)
else()
  file(READ ${INPUT} hex HEX)
endif()
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
       bytes "${bytes}")
file(WRITE ${OUTPUT} "extern const char ${SYMBOL}[];\nconst char ${SYMBOL}[] = {\n${bytes}0x00};\n")
