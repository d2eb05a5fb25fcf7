# SPDX-License-Identifier: Apache-2.0
#
# varve_add_tests(<label> <file>…)
#
#   Tests of one folder of tests/, registered with ctest as <label>/<name of the file>: scripts, and cmocka files. Those
#   of one folder (of unit/ the folder below it) are one program <build>/tests/<folder>; the name of a file runs its
#   cases. A file with a main of its own, or with a comment "Program of its own: reason", is a program for itself.
#
# All find VARVE (the command), VARVE_BUILD_DIR, VARVE_SOURCE_DIR and VARVE_SANITIZE in their environment; programs have
# the two directories as macros too. Exit status 77 means skipped. tests/run_test.py runs each and notes its processor
# seconds beside those that its head allows. The time limit is for tests that hang: no test has one of its own.
#
# What a comment of a file says, "MARKER: reason", anywhere in it:
#
#   Costs: 3 s, full 40 s   processor seconds, quick and full (tests/README.md); the dearest are started first
#   Runs threads:           label threads, which the preset tsan builds and runs; a program that calls pthread_create
#                           has it by itself
#   Reads damaged input:    label memory, which the preset asan builds and runs; cheap unit tests of the folders in
#                           VARVE_FOLDERS_OF_READERS have it by themselves
#   Only with an unsanitized command:   left out of sanitized builds

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)
set(VARVE_TEST_TIMEOUT 2400)

# Where modules read what others wrote: files, command lines, the memory of other programs.
set(VARVE_FOLDERS_OF_READERS
    "unit/(analysis|base|trace/(collector|format|import|model|stacks|store|symbols|callsites))/|golden/"
    "|alloc/core/test_alloc_(config|model)")
list(JOIN VARVE_FOLDERS_OF_READERS "" VARVE_FOLDERS_OF_READERS)

# What the programs and scripts of the tests need to be there.
add_custom_target(tests)

# What a file says of itself: its labels, and its quick costs.
function(_varve_test_says labels_out costs_out file)
  set(markers "Costs: |Runs threads: |Reads damaged input: ")
  if(file MATCHES "\\.c$")
    string(APPEND markers "|pthread_create\\(")
  endif()
  file(STRINGS ${file} says REGEX "${markers}")
  set(costs 1)
  if(says MATCHES "Costs: ([0-9]+) s")
    set(costs ${CMAKE_MATCH_1})
  endif()
  set(labels)
  if(says MATCHES "Runs threads: |pthread_create")
    list(APPEND labels threads)
  endif()
  if(says MATCHES "Reads damaged input: "
     OR (file MATCHES "\\.c$" AND file MATCHES "${VARVE_FOLDERS_OF_READERS}" AND costs LESS_EQUAL 9))
    list(APPEND labels memory)
  endif()
  set(${labels_out} ${labels} PARENT_SCOPE)
  set(${costs_out} ${costs} PARENT_SCOPE)
endfunction()

# Whether a sanitized build leaves the file out.
function(_varve_test_is_elsewhere variable file labels)
  set(elsewhere FALSE)
  if(VARVE_SANITIZE MATCHES "^(asan|tsan)$")
    set(wanted memory)
    if(VARVE_SANITIZE STREQUAL "tsan")
      set(wanted threads)
    endif()
    file(STRINGS ${file} unsanitized LIMIT_COUNT 1 REGEX "Only with an unsanitized command: ")
    if(unsanitized OR NOT wanted IN_LIST labels)
      set(elsewhere TRUE)
    endif()
  endif()
  set(${variable} ${elsewhere} PARENT_SCOPE)
endfunction()

function(_varve_test_properties test label costs)
  set_tests_properties(${test} PROPERTIES
    LABELS "${label};${ARGN}" COST ${costs} TIMEOUT ${VARVE_TEST_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "VARVE=${PROJECT_BINARY_DIR}/varve;VARVE_BUILD_DIR=${PROJECT_BINARY_DIR};\
VARVE_SOURCE_DIR=${PROJECT_SOURCE_DIR};VARVE_SANITIZE=${VARVE_SANITIZE};${VARVE_SANITIZE_ENVIRONMENT}")
  if(label STREQUAL "gpu")
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK gpu)
  elseif(test MATCHES "lttng|conformance/test_ctf") # root has one session daemon
    math(EXPR costs "${costs} + 10") # one after the other: the longest of all
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK lttng COST ${costs})
  endif()
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

# The program of a cmocka file, made with the first of them.
function(_varve_test_program program file)
  if(NOT TARGET ${program})
    add_executable(${program})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_link_libraries(${program} PRIVATE test_support)
    foreach(library varve_ctf_sink varve_protobuf)
      if(TARGET ${library})
        target_link_libraries(${program} PRIVATE ${library})
      endif()
    endforeach()
    _varve_link_layers(${program})
    varve_sanitize(${program})
    add_dependencies(tests ${program})
  endif()
  target_sources(${program} PRIVATE ${file})
endfunction()

function(varve_add_tests label)
  foreach(file IN LISTS ARGN)
    get_filename_component(name ${file} NAME_WE)
    _varve_test_says(labels costs ${file})
    _varve_test_is_elsewhere(elsewhere ${file} "${labels}")
    if(elsewhere)
      continue()
    endif()
    set(command ${file})
    if(file MATCHES "\\.c$")
      file(STRINGS ${file} says REGEX "^int main\\(|Program of its own: |lttng/ctf_reading\\.h\"|<[a-z]+\\.pb-c\\.h>")
      if((says MATCHES "ctf_reading" AND NOT TARGET varve_ctf_sink)
         OR (says MATCHES "pb-c" AND NOT TARGET varve_protobuf))
        message(STATUS "varve: ${name} is left out: it needs babeltrace2 or protobuf-c")
        continue()
      endif()
      set(program ${label})
      if(file MATCHES "/tests/unit/([a-z]+)/")
        set(program unit_${CMAKE_MATCH_1})
      endif()
      if(says MATCHES "int main|Program of its own")
        set(program ${name})
      endif()
      set(command $<TARGET_FILE:${program}>)
      if(NOT says MATCHES "int main")
        list(APPEND command ${name})
      endif()
      _varve_test_program(${program} ${file})
    endif()
    add_test(NAME ${label}/${name}
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/run_test.py ${label}/${name} ${file} ${command})
    _varve_test_properties(${label}/${name} ${label} ${costs} ${labels})
  endforeach()
endfunction()
