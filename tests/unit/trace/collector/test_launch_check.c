/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/collector/programs/launch_check.c: which programs can be recorded. Every case is a file made for it in a
 * temporary folder; ELF files are headers only, since nothing here is run. What depends on the user (setuid, file
 * capabilities) is also looked at from a child that has become nobody. Costs: 1 s
 */
#include <stdbool.h>
#include <cmocka.h>

#include "trace/collector/programs/launch.h"
#include "base/error.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NOBODY 65534
#define LOADER "/lib64/ld-linux-x86-64.so.2"

static char folder[] = "/tmp/varve-check-XXXXXX";
static struct launch_check check;

struct image {
    Elf64_Ehdr header;
    Elf64_Phdr segments[2];
    char loader[64];
};

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

static struct image make_image(uint16_t type, const char *loader)
{
    struct image image;
    memset(&image, 0, sizeof(image));
    memcpy(image.header.e_ident, ELFMAG, SELFMAG);
    image.header.e_ident[EI_CLASS] = ELFCLASS64;
    image.header.e_ident[EI_DATA] = ELFDATA2LSB;
    image.header.e_type = type;
    image.header.e_machine = MACHINE;
    image.header.e_phoff = offsetof(struct image, segments);
    image.header.e_phentsize = sizeof(Elf64_Phdr);
    image.header.e_phnum = 2;
    image.segments[0].p_type = PT_LOAD;
    image.segments[1].p_type = loader ? PT_INTERP : PT_DYNAMIC;
    image.segments[1].p_offset = offsetof(struct image, loader);
    image.segments[1].p_filesz = loader ? strlen(loader) + 1 : 0;
    snprintf(image.loader, sizeof(image.loader), "%s", loader ? loader : "");
    return image;
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void make_file(const char *name, const void *bytes, size_t count, mode_t mode)
{
    const char *path = path_of(name);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void make_text(const char *name, const char *text)
{
    make_file(name, text, strlen(text), 0755);
}

static void make_elf(const char *name, const struct image *image)
{
    make_file(name, image, sizeof(*image), 0755);
}

/* A program that can be recorded, or with LOADER NULL one that is linked statically. */
static void make_program(const char *name, const char *loader, mode_t mode)
{
    const struct image image = make_image(loader != NULL ? ET_DYN : ET_EXEC, loader);
    make_file(name, &image, sizeof(image), mode);
}

/* A name with a '/' is taken as it is, another is looked for in the folder. */
static void expect(const char *name, int expected, const char *text)
{
    char program[256];
    snprintf(program, sizeof(program), "%s", strchr(name, '/') ? name : path_of(name));
    struct varve_message message = {""};
    int error = launch_check(program, &check, &message);
    if (error != expected) {
        fail_msg("%s: %d where %d was expected: %s", name, error, expected, message.text);
    }
    if (!strstr(message.text, text) || strchr(message.text, '\n')) {
        fail_msg("%s: '%s' is not in the one line '%s'", name, text, message.text);
    }
    if (!expected) {
        assert_string_equal(check.path, program);
    }
}

TEST(test_not_found)
{
    expect("absent", VARVE_ERROR_NOT_FOUND, "no such program: '/tmp/varve-check-");
    expect("/etc/passwd/below", VARVE_ERROR_NOT_FOUND, "/etc/passwd/below");
    struct varve_message message;
    assert_int_equal(launch_check("", &check, &message), VARVE_ERROR_NOT_FOUND);
    static char long_name[10000];
    memset(long_name, 'x', sizeof(long_name) - 1);
    assert_int_equal(launch_check(long_name, &check, &message), VARVE_ERROR_NOT_FOUND);
    long_name[0] = '/';
    assert_int_equal(launch_check(long_name, &check, &message), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(launch_check("absent", &check, NULL), VARVE_ERROR_NOT_FOUND); /* no message wanted */
}

TEST(test_permission)
{
    make_program("plain", LOADER, 0644);
    expect("plain", VARVE_ERROR_PERMISSION, "is not executable: chmod +x");
    expect(folder, VARVE_ERROR_PERMISSION, "is a directory");
    expect("/dev/null", VARVE_ERROR_PERMISSION, "not a regular file");
    assert_int_equal(mkfifo(path_of("fifo"), 0755), 0);
    expect("fifo", VARVE_ERROR_PERMISSION, "not a regular file");
}

TEST(test_elf)
{
    static const struct {
        const char *name, *loader; /* loader NULL: linked statically */
        uint16_t type, machine;
        uint8_t class, data;
        int expected;
        const char *text;
    } cases[] = {
        {"pie", LOADER, ET_DYN, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_OK, ""},
        {"exec", LOADER, ET_EXEC, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_OK, ""},
        {"object", LOADER, ET_REL, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "not a program"},
        {"static", NULL, ET_EXEC, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "statically linked"},
        {"static-pie", NULL, ET_DYN, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "statically linked"},
        {"ld-linux-other.so.2", NULL, ET_DYN, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "C library"},
        {"musl", "/lib/ld-musl-x86_64.so.1", ET_DYN, MACHINE, ELFCLASS64, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "musl"},
        {"riscv", LOADER, ET_DYN, EM_RISCV, ELFCLASS64, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "for another machine"},
        {"bigendian", LOADER, ET_DYN, MACHINE, ELFCLASS64, ELFDATA2MSB, VARVE_ERROR_UNSUPPORTED, "for another machine"},
        {"class32", LOADER, ET_DYN, MACHINE, ELFCLASS32, ELFDATA2LSB, VARVE_ERROR_UNSUPPORTED, "32-bit"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct image image = make_image(cases[i].type, cases[i].loader);
        image.header.e_machine = cases[i].machine;
        image.header.e_ident[EI_CLASS] = cases[i].class;
        image.header.e_ident[EI_DATA] = cases[i].data;
        make_elf(cases[i].name, &image);
        expect(cases[i].name, cases[i].expected, cases[i].text);
        assert_true(cases[i].expected != VARVE_OK || check.interpreter[0] == '\0');
    }
    expect(LOADER, VARVE_OK, ""); /* as a command */
}

TEST(test_elf_damaged)
{
    struct image image = make_image(ET_DYN, LOADER);
    static const size_t cuts[] = {4,
                                  5,
                                  63,
                                  64,
                                  100,
                                  offsetof(struct image, segments[1]) + 8,
                                  offsetof(struct image, loader),
                                  offsetof(struct image, loader) + 5};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        make_file("cut", &image, cuts[i], 0755);
        expect("cut", VARVE_ERROR_FORMAT, "damaged");
    }
    for (int i = 0; i < 3; i++) { /* a loader without a name, with one that has no end, far away */
        image = make_image(ET_DYN, LOADER);
        image.segments[1].p_filesz = i == 0 ? 0 : i == 1 ? UINT64_MAX : image.segments[1].p_filesz;
        image.header.e_phoff = i == 2 ? UINT64_MAX - 8 : image.header.e_phoff;
        make_elf("odd", &image);
        expect("odd", VARVE_ERROR_FORMAT, "damaged");
    }
}

TEST(test_script)
{
    static const struct {
        const char *script;
        int expected;
        const char *text; /* of the message, or where it can be recorded the interpreter */
    } cases[] = {
        {"#!/bin/sh\nexit 0\n", VARVE_OK, "/bin/sh"},
        {"#!  \t/bin/sh -e  \n", VARVE_OK, "/bin/sh"},
        {"#!/bin/sh", VARVE_OK, "/bin/sh"},
        {"#!/nonexistent/python\n", VARVE_ERROR_NOT_FOUND, "no such program: '/nonexistent/python'"},
        {"#!/bin/sh\r\n", VARVE_ERROR_NOT_FOUND, "dos2unix"},
        {"#!/etc/passwd\n", VARVE_ERROR_PERMISSION, "'/etc/passwd' is not executable"},
        {"echo no magic at all\n", VARVE_OK, "/bin/sh"},
        {"", VARVE_OK, "/bin/sh"},
        {"#!\n", VARVE_OK, "/bin/sh"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_good = cases[i].expected == VARVE_OK;
        make_text("script", cases[i].script);
        expect("script", cases[i].expected, is_good ? "" : cases[i].text);
        assert_true(!is_good || strcmp(check.interpreter, cases[i].text) == 0);
    }
}

/* A script whose interpreter is another file of the folder. */
static void make_script(const char *name, const char *interpreter)
{
    char line[300];
    snprintf(line, sizeof(line), "#!%s\n", path_of(interpreter));
    make_text(name, line);
}

TEST(test_script_chain)
{
    make_program("static", NULL, 0755);
    make_text("level0", "#!/bin/sh\n");
    make_script("level1", "level0");
    make_script("level2", "level1");
    make_script("level3", "level2");
    make_script("level4", "level3");
    make_script("static-script", "static");
    make_script("loop", "loop");
    expect("level3", VARVE_OK, "");
    assert_string_equal(check.interpreter, "/bin/sh");
    expect("level4", VARVE_ERROR_UNSUPPORTED, "interpreter is a script");
    expect("static-script", VARVE_ERROR_UNSUPPORTED, "/static' is statically linked");
    expect("loop", VARVE_ERROR_UNSUPPORTED, "interpreter is a script");
}

TEST(test_script_env)
{
    make_program("snake3", LOADER, 0755);
    make_program("stone", NULL, 0755);
    assert_int_equal(setenv("PATH", folder, 1), 0);
    static const struct {
        const char *line;
        int expected;
        const char *interpreter; /* its last part */
    } cases[] = {
        {"#!/usr/bin/env snake3\n", VARVE_OK, "/snake3"},
        {"#!/usr/bin/env  snake3\t\n", VARVE_OK, "/snake3"},
        {"#!/usr/bin/env -S snake3 -u\n", VARVE_OK, "/snake3"},
        {"#!/usr/bin/env -S A=1 B=2 snake3\n", VARVE_OK, "/snake3"},
        {"#!/usr/bin/env -Ssnake3 -u\n", VARVE_OK, "/snake3"},
        {"#!/usr/bin/env stone\n", VARVE_ERROR_UNSUPPORTED, NULL},
        {"#!/usr/bin/env snake4\n", VARVE_ERROR_NOT_FOUND, NULL},
        {"#!/usr/bin/env snake3 -u\n", VARVE_ERROR_NOT_FOUND, NULL}, /* one argument, as env will see it */
        {"#!/usr/bin/env -S \"snake3\"\n", VARVE_OK, "/env"},
        {"#!/usr/bin/env -S -i snake4\n", VARVE_OK, "/env"},
        {"#!/usr/bin/env -i\n", VARVE_OK, "/env"},
        {"#!/usr/bin/env A=1\n", VARVE_OK, "/env"},
        {"#!/usr/bin/env\n", VARVE_OK, "/env"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_text("with-env", cases[i].line);
        expect("with-env", cases[i].expected, "");
        if (cases[i].interpreter && strcmp(strrchr(check.interpreter, '/'), cases[i].interpreter) != 0) {
            fail_msg("%s gave %s", cases[i].line, check.interpreter);
        }
    }
}

TEST(test_path)
{
    assert_int_equal(mkdir(path_of("first"), 0755), 0);
    assert_int_equal(mkdir(path_of("second"), 0755), 0);
    assert_int_equal(mkdir(path_of("first/tool"), 0755), 0);
    make_program("second/tool", LOADER, 0755);
    make_program("first/other", LOADER, 0644);
    make_program("second/other", LOADER, 0755);
    make_program("first/never", LOADER, 0644);
    char path[600], expected[300];
    snprintf(path, sizeof(path), "/nonexistent:%s/first:%s/second", folder, folder);
    assert_int_equal(setenv("PATH", path, 1), 0);
    struct varve_message message = {""};
    static const char *const names[] = {"tool", "other"}; /* behind a directory, behind one without x */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(launch_check(names[i], &check, &message), VARVE_OK);
        snprintf(expected, sizeof(expected), "%s/second/%s", folder, names[i]);
        assert_string_equal(check.path, expected);
    }
    assert_int_equal(launch_check("never", &check, &message), VARVE_ERROR_PERMISSION);
    assert_non_null(strstr(message.text, "first/never' is not executable"));
    assert_int_equal(launch_check("nowhere", &check, &message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "folders of PATH"));

    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(path_of("second")), 0);
    assert_int_equal(setenv("PATH", "/nonexistent::/bin", 1), 0); /* an empty element is the current folder */
    assert_int_equal(launch_check("tool", &check, &message), VARVE_OK);
    assert_string_equal(check.path, "tool");
    assert_int_equal(unsetenv("PATH"), 0);
    assert_int_equal(launch_check("sh", &check, &message), VARVE_OK);
    assert_string_equal(check.path, "/bin/sh");
    assert_int_equal(chdir(before), 0);
    free(before);
}

/* The result of launch_check in a child that became nobody, or that may gain no privileges. */
static int check_in_child(const char *name, bool as_nobody)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (as_nobody ? setgid(NOBODY) != 0 || setuid(NOBODY) != 0 : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
            _exit(99);
        }
        _exit(-launch_check(path_of(name), &check, NULL));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

TEST(test_secure_execution)
{
    make_program("mine", LOADER, 06755);
    expect("mine", VARVE_OK, ""); /* setuid and setgid to what we are already */
    struct statvfs mount;
    if (getuid() != 0 || statvfs(folder, &mount) != 0 || (mount.f_flag & ST_NOSUID)) {
        skip("not root, or the temporary folder is mounted nosuid");
    }
    make_program("nobodys", LOADER, 0755);
    assert_int_equal(chown(path_of("nobodys"), NOBODY, NOBODY), 0);
    assert_int_equal(chmod(path_of("nobodys"), 04755), 0);
    expect("nobodys", VARVE_ERROR_UNSUPPORTED, "is setuid");
    assert_int_equal(check_in_child("nobodys", true), VARVE_OK);
    assert_int_equal(check_in_child("nobodys", false), VARVE_OK); /* no_new_privs: the bit is not heeded */
    assert_int_equal(check_in_child("mine", true), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(chmod(path_of("nobodys"), 02755), 0);
    expect("nobodys", VARVE_ERROR_UNSUPPORTED, "is setgid");
    assert_int_equal(chmod(path_of("nobodys"), 02745), 0); /* without the group's x: no setgid program */
    expect("nobodys", VARVE_OK, "");
    /* A script's own bits mean nothing. */
    make_text("script", "#!/bin/sh\n");
    assert_int_equal(chown(path_of("script"), NOBODY, NOBODY), 0);
    assert_int_equal(chmod(path_of("script"), 04755), 0);
    expect("script", VARVE_OK, "");
    /* May be executed, but not read: exec decides. */
    make_program("secret", LOADER, 0711);
    assert_int_equal(check_in_child("secret", true), VARVE_OK);
    /* Searching a folder needs its x bit. */
    assert_int_equal(mkdir(path_of("closed"), 0700), 0);
    make_program("closed/inside", LOADER, 0755);
    assert_int_equal(check_in_child("closed/inside", true), VARVE_ERROR_PERMISSION);
}

TEST(test_capabilities)
{
    make_program("capable", LOADER, 0755);
    /* struct vfs_cap_data, revision 2, effective, permitted = CAP_NET_RAW */
    uint32_t words[5] = {0x02000001, 1U << 13, 0, 0, 0};
    if (getuid() != 0 || setxattr(path_of("capable"), "security.capability", words, sizeof(words), 0) != 0) {
        skip("not root, or the temporary folder takes no capabilities");
    }
    expect("capable", VARVE_OK, ""); /* root has them all */
    assert_int_equal(check_in_child("capable", true), VARVE_ERROR_UNSUPPORTED);
    words[0] = 0x02000000;
    words[1] = 0;
    assert_int_equal(setxattr(path_of("capable"), "security.capability", words, sizeof(words), 0), 0);
    assert_int_equal(check_in_child("capable", true), VARVE_OK); /* an empty set grants nothing */
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && chmod(folder, 0755) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "/bin/rm -rf %s", folder);
    return system(command);
}

TEST_FILE(make_folder, remove_folder)
