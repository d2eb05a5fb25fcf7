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
# have the two directories as macros too. Time limit: 120 s for fast unit tests, 600 s for others, 1200 s under a sanitizer.
#
# Labels are the folder and what a comment of the file says, "MARKER: reason", anywhere in it:
#
#   Slow:                 more than ten seconds in a release build; label slow, all others have the label fast. The slow
#                         ones are started first, so that none is left alone at the end
#   Runs threads:         label threads, which the preset tsan runs; a program that calls pthread_create has it by itself
#   Reads damaged input:  label memory, which the preset asan runs; fast unit tests of the folders in
#                         VARVE_FOLDERS_OF_READERS have it by themselves
#
# For each label there is a target tests_LABEL of its programs.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)

# Where modules read what others wrote: files, command lines, the memory of other programs.
set(VARVE_FOLDERS_OF_READERS
    "unit/(analysis|trace/(base|collector|format|import|model|recorder/stacks|store|symbols))/|alloc/core/test_alloc_(config|model)|golden/")

# What the file says of itself, as labels.
function(_varve_test_labels variable file)
  set(markers "Slow: |Runs threads: |Reads damaged input: ")
  if(file MATCHES "\\.c$")
    string(APPEND markers "|pthread_create\\(")
  endif()
  file(STRINGS ${file} says REGEX "${markers}")
  set(labels)
  if(says MATCHES "Slow: ")
    list(APPEND labels slow)
  else()
    list(APPEND labels fast)
  endif()
  if(says MATCHES "Runs threads: |pthread_create")
    list(APPEND labels threads)
  endif()
  if(says MATCHES "Reads damaged input: "
     OR (file MATCHES "\\.c$" AND file MATCHES "${VARVE_FOLDERS_OF_READERS}" AND NOT says MATCHES "Slow: "))
    list(APPEND labels memory)
  endif()
  set(${variable} ${labels} PARENT_SCOPE)
endfunction()

function(_varve_test_properties test folder timeout)
  if(NOT timeout)
    set(timeout 600)
    if(NOT VARVE_SANITIZE STREQUAL "none")
      set(timeout 1200)
    elseif(folder STREQUAL "unit" AND NOT "slow" IN_LIST ARGN)
      set(timeout 120)
    endif()
  endif()
  set_tests_properties(${test} PROPERTIES
    LABELS "${folder};${ARGN}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    ENVIRONMENT "VARVE=${PROJECT_BINARY_DIR}/varve;VARVE_BUILD_DIR=${PROJECT_BINARY_DIR};\
VARVE_SOURCE_DIR=${PROJECT_SOURCE_DIR};VARVE_SANITIZE=${VARVE_SANITIZE};${VARVE_SANITIZE_ENVIRONMENT}")
  set(cost 1)
  if("slow" IN_LIST ARGN)
    set(cost 100)
  endif()
  if(folder STREQUAL "gpu")
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK gpu)
  elseif(test MATCHES "lttng|conformance/test_ctf") # root has one session daemon
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK lttng)
    math(EXPR cost "${cost} * 2") # one after the other: the longest of all
  endif()
  set_tests_properties(${test} PROPERTIES COST ${cost})
endfunction()

# Links what every program below tests/ may use: our libraries, as far as they exist, and the system's.
function(_varve_link_layers target)
  foreach(layer varve_analysis varve_storage varve_alloc varve_collect varve_trace)
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
  list(GET arg_SOURCES 0 source)
  _varve_test_labels(labels ${source})
  _varve_test_properties(${arg_LABEL}/${name} ${arg_LABEL} "${arg_TIMEOUT}" ${labels})
  foreach(label IN LISTS labels)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

function(varve_add_test_script file)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "")
  get_filename_component(name ${file} NAME_WE)
  add_test(NAME ${arg_LABEL}/${name} COMMAND ${file})
  _varve_test_labels(labels ${file})
  _varve_test_properties(${arg_LABEL}/${name} ${arg_LABEL} "${arg_TIMEOUT}" ${labels})
endfunction()
