# Completion of varve for bash, as `varve completion bash` prints it: the program itself says what may follow.
_varve()
{
    local program=${COMP_WORDS[0]/#\~\//$HOME/} cur=${COMP_WORDS[COMP_CWORD]} kind rest said

    said=$("$program" completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    IFS=$'\t' read -r kind rest <<<"$said"
    [[ $cur == = ]] && cur= # bash makes three words of --name=value
    COMPREPLY=()
    if [[ $kind == :program ]] && ((rest < COMP_CWORD)) && declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$rest"
    elif [[ $kind == :program ]] && ((rest < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
        _command_offset "$rest"
    elif [[ $kind == :program ]] && ((rest == COMP_CWORD)); then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
    elif [[ $kind == :program || $kind == :files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    elif [[ $kind != :* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(cut -f 1 <<<"$said")" -- "$cur")
    fi
}
complete -F _varve varve
