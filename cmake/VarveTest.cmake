# SPDX-License-Identifier: Apache-2.0
#
# varve_add_test(<name> LABEL <folder> SOURCES <file>… [LIBRARIES <target>…] [TIMEOUT <seconds>] [NO_SANITIZE])
#
#   A cmocka program <build>/tests/<name>, registered with ctest as <folder>/<name>. It links the highest layer there
#   is, cmocka and SQLite. One program is one process; exit status 77 means skipped.
#
# varve_add_test_script(<file> LABEL <folder> [TIMEOUT <seconds>])
#
#   An executable script, registered with ctest as <folder>/<name without suffix>.
#
# Both find VARVE (the command), VARVE_BUILD_DIR, VARVE_SOURCE_DIR and VARVE_SANITIZE in their environment; programs
# have the two directories as macros too. Stress tests run alone. Time limit: 120 s for unit tests, 600 s for others.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)

function(_varve_test_properties test label timeout)
  if(NOT timeout)
    set(timeout 600)
    if(label STREQUAL "unit")
      set(timeout 120)
    endif()
  endif()
  set_tests_properties(${test} PROPERTIES
    LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    ENVIRONMENT "VARVE=${PROJECT_BINARY_DIR}/varve;VARVE_BUILD_DIR=${PROJECT_BINARY_DIR};\
VARVE_SOURCE_DIR=${PROJECT_SOURCE_DIR};VARVE_SANITIZE=${VARVE_SANITIZE};${VARVE_SANITIZE_ENVIRONMENT}")
  if(label STREQUAL "stress")
    set_tests_properties(${test} PROPERTIES RUN_SERIAL ON)
  elseif(label STREQUAL "gpu")
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK gpu)
  elseif(test MATCHES "lttng|ctf") # root has one session daemon
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK lttng)
  endif()
endfunction()

# Links what every program below tests/ may use: our libraries, as far as they exist, and the system's.
function(_varve_link_layers target)
  foreach(layer varve_analysis varve_alloc varve_collect varve_trace)
    if(TARGET ${layer})
      target_link_libraries(${target} PRIVATE ${layer})
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE varve_warnings PkgConfig::sqlite3 Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    VARVE_BUILD_DIR="${PROJECT_BINARY_DIR}" VARVE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

function(varve_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_SANITIZE" "LABEL;TIMEOUT" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(TARGET test_support AND NOT arg_NO_SANITIZE)
    target_link_libraries(${name} PRIVATE test_support)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} PkgConfig::cmocka)
  _varve_link_layers(${name})
  if(NOT arg_NO_SANITIZE)
    varve_sanitize(${name})
  endif()
  add_test(NAME ${arg_LABEL}/${name} COMMAND ${name})
  _varve_test_properties(${arg_LABEL}/${name} ${arg_LABEL} "${arg_TIMEOUT}")
endfunction()

function(varve_add_test_script file)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "")
  get_filename_component(name ${file} NAME_WE)
  add_test(NAME ${arg_LABEL}/${name} COMMAND ${file})
  _varve_test_properties(${arg_LABEL}/${name} ${arg_LABEL} "${arg_TIMEOUT}")
endfunction()
