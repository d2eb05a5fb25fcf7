# SPDX-License-Identifier: Apache-2.0
#
# Removes the files that MANIFEST lists, which `cmake --install` writes, and the folders that are empty then.

if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "nothing was installed from here: there is no ${MANIFEST}")
endif()
file(STRINGS "${MANIFEST}" files ENCODING UTF-8)
foreach(file IN LISTS files)
  message(STATUS "Removing: ${file}")
  file(REMOVE "${file}")
  get_filename_component(folder "${file}" DIRECTORY)
  file(GLOB left "${folder}/*")
  while(NOT left AND IS_DIRECTORY "${folder}")
    file(REMOVE_RECURSE "${folder}")
    get_filename_component(folder "${folder}" DIRECTORY)
    file(GLOB left "${folder}/*")
  endwhile()
endforeach()
file(REMOVE "${MANIFEST}")
