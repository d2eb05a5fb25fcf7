# SPDX-License-Identifier: Apache-2.0
#
# varve_kernels(OUTPUT_VARIABLE path…): the sources that make the programs storage/cuda/path.cu, compiled by nvcc for
# all GPUs that we know and as PTX for those to come, a part of the library. Without nvcc the images are empty, and work
# on a GPU's elements goes through the host.

varve_choice(VARVE_KERNELS AUTO "Compile kernels for GPUs, by nvcc" AUTO ON OFF)
find_program(VARVE_NVCC nvcc HINTS /usr/local/cuda/bin DOC "The CUDA compiler; without it there are no kernels")
if(VARVE_KERNELS STREQUAL "ON" AND NOT VARVE_NVCC)
  message(FATAL_ERROR "VARVE_KERNELS=ON needs nvcc; put it into PATH or name it by VARVE_NVCC")
endif()
set(VARVE_HAS_KERNELS OFF)
if(VARVE_NVCC AND (VARVE_KERNELS STREQUAL "ON" OR (VARVE_KERNELS STREQUAL "AUTO" AND VARVE_SANITIZE STREQUAL "none")))
  set(VARVE_HAS_KERNELS ON)
  execute_process(COMMAND ${VARVE_NVCC} --help OUTPUT_VARIABLE nvcc_help)
  if(nvcc_help MATCHES "--compress-mode") # a seventh of the size
    set(VARVE_KERNELS_COMPRESSED --compress-mode=size)
  endif()
endif()

function(varve_kernels output)
  set(folder ${PROJECT_SOURCE_DIR}/storage/cuda)
  set(flags -fatbin -O3 -std=c++17 -Werror all-warnings -I ${PROJECT_SOURCE_DIR} ${VARVE_KERNELS_COMPRESSED}
      -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90])
  set(sources)
  foreach(path IN LISTS ARGN)
    get_filename_component(name ${path} NAME)
    set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}_image.c)
    if(VARVE_HAS_KERNELS)
      add_custom_command(OUTPUT ${image} VERBATIM
        COMMAND ${VARVE_NVCC} ${flags} -MD -MF ${image}.d -o ${image} ${folder}/${path}.cu
        DEPENDS ${folder}/${path}.cu DEPFILE ${image}.d COMMENT "nvcc ${name}.cu")
      configure_file(${folder}/gpu_image.c.in ${source} @ONLY)
      set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${image} COMPILE_OPTIONS -fno-lto)
    else()
      configure_file(${folder}/gpu_image_none.c.in ${source} @ONLY)
    endif()
    list(APPEND sources ${source})
  endforeach()
  set(${output} ${sources} PARENT_SCOPE)
endfunction()
