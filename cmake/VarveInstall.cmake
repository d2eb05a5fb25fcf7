# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` gives to programs that are written against varve: the public headers, libvarve_trace.so (the
# recorder, for programs that emit events themselves), libvarve.so (allocator and storages), libvarve_alloc.a (the
# allocator alone), and two ways to find them, the CMake package (varve::trace, varve::varve, varve::alloc) and
# varve.pc. The command and what it loads into programs are installed where they are made. .ci/check_install.sh builds
# programs against the result.

include(CMakePackageConfigHelpers)

# The headers are those that the public ones include, by the quoted includes in them: a list could forget one.
set(pending trace/emit.h trace/writer.h storage/storage.h)
set(headers)
while(pending)
  list(POP_FRONT pending header)
  if(NOT header IN_LIST headers)
    list(APPEND headers ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"")
    list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
    list(APPEND pending ${includes})
  endif()
endwhile()
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/varve/${folder} COMPONENT development)
endforeach()

install(TARGETS varve_trace_shared varve_shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_COMPONENT development)
install(TARGETS varve_alloc ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)

# Both files say where they are by their own place, so that an installed tree can be moved.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/varve)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/varve-config.cmake.in ${PROJECT_BINARY_DIR}/varve-config.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/varve-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/varve-config.cmake ${PROJECT_BINARY_DIR}/varve-config-version.cmake
  DESTINATION ${package} COMPONENT development)
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/varve.pc.in ${PROJECT_BINARY_DIR}/varve.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/varve.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# The Python package is for the Python that has it in its path, which only distributions know; pip installs it else.
set(VARVE_PYTHON_DIRECTORY "" CACHE STRING "Where below the prefix the Python package goes; empty: nowhere")
if(VARVE_PYTHON_DIRECTORY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/notebooks/varve DESTINATION ${VARVE_PYTHON_DIRECTORY}
    PATTERN __pycache__ EXCLUDE)
endif()

add_custom_target(uninstall
  COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt -P
          ${PROJECT_SOURCE_DIR}/cmake/Uninstall.cmake
  COMMENT "Removing what the last installation has put somewhere" VERBATIM)
