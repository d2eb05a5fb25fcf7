# SPDX-License-Identifier: Apache-2.0
#
# varve_sanitize(target [target…])
#
# Builds the targets with the sanitizer that VARVE_SANITIZE names. It is called per target and never globally: a
# malloc interposer that LD_PRELOAD puts into other programs can't carry a sanitizer's run time, and neither can the
# workload programs which it is loaded into. Everything that such a library links must be left out as well.
#
# varve_sanitize_guest(target [target…])
#
# The same for what is loaded into other programs: only `trap` does anything there, undefined behaviour that ends the
# program by SIGILL or SIGTRAP and needs no run time.

# -O1 -g1: half the time of a build, and reports still have their lines.
set(_varve_sanitize_none "")
set(_varve_sanitize_asan -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all)
# -Wno-tsan: the sanitizer does not see fences; where one matters the code that needs it says how it is checked.
set(_varve_sanitize_tsan -O1 -g1 -fsanitize=thread $<$<C_COMPILER_ID:GNU>:-Wno-tsan>)
set(_varve_sanitize_trap -fsanitize=undefined
    $<IF:$<C_COMPILER_ID:GNU>,-fsanitize-undefined-trap-on-error,-fsanitize-trap=all> -fno-sanitize=vptr)
set(_varve_sanitize_fuzz -fsanitize=fuzzer-no-link,address)

# What a sanitized test finds in its environment; leaks count as failures, the first report ends the program.
set(VARVE_SANITIZE_ENVIRONMENT
    "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/.ci/suppressions/lsan.txt:print_suppressions=0"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/.ci/suppressions/tsan.txt")

function(varve_sanitize)
  if(VARVE_SANITIZE STREQUAL "none")
    return()
  endif()
  foreach(target IN LISTS ARGN)
    # PUBLIC at the link: a program that takes a sanitized static library needs the sanitizer's run time.
    target_compile_options(${target} PRIVATE ${_varve_sanitize_${VARVE_SANITIZE}})
    target_link_options(${target} PUBLIC ${_varve_sanitize_${VARVE_SANITIZE}})
  endforeach()
endfunction()

function(varve_sanitize_guest)
  if(VARVE_SANITIZE STREQUAL "trap")
    varve_sanitize(${ARGN})
  endif()
endfunction()
