/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that calls back, so that a test can have a frame of it on its stack, unload it and load it again.
 */
void lib_callback_call(void (*function)(void *), void *argument);

void lib_callback_call(void (*function)(void *), void *argument)
{
    function(argument);
    __asm__ volatile("" ::: "memory"); /* not a jump: the frame has to stay */
}
