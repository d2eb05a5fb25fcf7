# Completion of varve for fish, as `varve completion fish` prints it: the program itself says what may follow.
function __varve_offer --description 'what may follow'
    set -l words (commandline -opc) (commandline -ct)
    set -l said ($words[1] completion --words -- $words[2..-1] 2>/dev/null)
    set -l what (string split \t -- "$said[1]")
    switch $what[1]
        case :program
            set -l from (math $what[2] + 1)
            complete -C "$words[$from..-1]"
        case :files
            set -l begun (string sub -s (math (string length -- "$what[2]") + 1) -- $words[-1])
            printf '%s\n' $what[2](complete -C "'' $begun")
        case ':*'
        case '*'
            printf '%s\n' $said
    end
end
complete -c varve -f -a '(__varve_offer)'
