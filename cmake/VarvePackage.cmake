# SPDX-License-Identifier: Apache-2.0
#
# The Debian package, by CPack from the preset `package`: `./dev package` makes it, and the wheel (pyproject.toml).

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME varve)
set(CPACK_PACKAGE_CONTACT "The varve developers <varve@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "The heap of unmodified programs with native and Python call sites, GPU memory of
the CUDA driver and of PyTorch, recorded into one SQLite file, and answers
where the memory went. It has the command, the libraries with their headers,
and the Python package.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # what the libraries need, with versions
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_DEPENDS python3)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3-pandas)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "lttng-tools, babeltrace2")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT shell)
include(CPack)
