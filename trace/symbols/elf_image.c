/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mapping keeps a file that was deleted or replaced, and unlike a descriptor there may be thousands. elfutils wants a
 * descriptor: where the file's name leads elsewhere by then, the contents are copied into memory, by the kernel, which
 * answers with an error where a load would be a SIGBUS. Called by symbol_module.c and callsites/callsite_images.c.
 */
#include "trace/symbols/elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES_MAX ((size_t)1 << 30)
#define SEGMENTS_MAX 64U
#define NOTES_MAX 4096U

static bool elf_image_read_at(int file, void *to, size_t bytes, uint64_t offset)
{
    return pread(file, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* The build id among these notes, if it is there. */
static void find_build_id(struct symbols_image *image, const unsigned char *notes, size_t bytes)
{
    ElfW(Nhdr) note;
    while (bytes >= sizeof(note)) {
        memcpy(&note, notes, sizeof(note));
        const size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        const size_t description = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name > bytes || description > bytes || sizeof(note) + name + description > bytes) {
            return;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + sizeof(note), "GNU", 4) == 0 &&
            note.n_descsz <= SYMBOLS_BUILD_ID_MAX) {
            memcpy(image->build_id, notes + sizeof(note) + name, note.n_descsz);
            image->build_id_bytes = note.n_descsz;
            return;
        }
        notes += sizeof(note) + name + description;
        bytes -= sizeof(note) + name + description;
    }
}

static bool read_build_id(struct symbols_image *image, int file)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) segments[SEGMENTS_MAX];
    unsigned char notes[NOTES_MAX];
    if (!elf_image_read_at(file, &head, sizeof(head), 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_phentsize != sizeof(segments[0]) || head.e_phnum > SEGMENTS_MAX ||
        !elf_image_read_at(file, segments, head.e_phnum * sizeof(segments[0]), head.e_phoff)) {
        return false;
    }
    for (unsigned i = 0; i < head.e_phnum && image->build_id_bytes == 0; i++) {
        const size_t bytes = segments[i].p_filesz < NOTES_MAX ? segments[i].p_filesz : NOTES_MAX;
        if (segments[i].p_type == PT_NOTE && elf_image_read_at(file, notes, bytes, segments[i].p_offset)) {
            find_build_id(image, notes, bytes);
        }
    }
    return true;
}

bool symbols_image_take(struct symbols_image *image, int file)
{
    struct stat status;
    *image = (struct symbols_image){.copy = -1};
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0 || !read_build_id(image, file)) {
        return false;
    }
    image->device = status.st_dev;
    image->inode = status.st_ino;
    image->length = (size_t)status.st_size;
    void *bytes = mmap(NULL, image->length, PROT_READ, MAP_PRIVATE, file, 0);
    image->bytes = bytes;
    return bytes != MAP_FAILED;
}

int symbols_image_open(struct symbols_image *image)
{
    size_t written = 0;
    if (image->copy < 0 && image->length <= COPY_BYTES_MAX) {
        image->copy = memfd_create("varve-image", MFD_CLOEXEC);
        while (image->copy >= 0 && written < image->length) {
            const ssize_t bytes = write(image->copy, (const char *)image->bytes + written, image->length - written);
            if (bytes <= 0) {
                close(image->copy);
                image->copy = -1;
                break;
            }
            written += (size_t)bytes;
        }
    }
    return image->copy >= 0 ? fcntl(image->copy, F_DUPFD_CLOEXEC, 0) : -1;
}

bool symbols_image_is(const struct symbols_image *image, int file)
{
    struct stat status;
    return fstat(file, &status) == 0 && status.st_dev == image->device && status.st_ino == image->inode;
}

void symbols_image_drop(struct symbols_image *image)
{
    if (image->copy >= 0) {
        close(image->copy);
    }
    munmap((void *)(uintptr_t)image->bytes, image->length);
}
