#compdef varve
# Completion of varve for zsh, as `varve completion zsh` prints it: the program itself says what may follow.
_varve()
{
    local -a said
    said=("${(@f)$("${(Q)${~words[1]}}" completion --words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    local kind=${said[1]%%$'\t'*} rest=${said[1]#*$'\t'}
    case $kind in
    '') return 1 ;;
    :program)
        shift $rest words
        ((CURRENT -= rest))
        ((CURRENT == 1)) && _command_names -e || _normal
        ;;
    :files) compset -p ${#rest} && _files ;;
    :value) _message -e values $rest ;;
    *)
        said=("${(@)${(@)said//:/\\:}/$'\t'/:}")
        [[ $PREFIX == -* ]] && _describe -o option said || _describe word said
        ;;
    esac
}

if [ "$funcstack[1]" = _varve ]; then # called, as a file of $fpath
    _varve "$@"
else # sourced
    compdef _varve varve
fi
