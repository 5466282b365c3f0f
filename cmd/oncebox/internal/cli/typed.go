package cli

import (
	"slices"
	"strings"
)

// Typed returns a command as an operator types it in a shell. Words that the shell would interpret are quoted.
func Typed(words ...string) string { return line(words, "") }

// Decided is Typed for a command that needs an actor: the shell puts in the name of its user.
func Decided(words ...string) string { return line(words, ` --by "$USER"`) }

// line puts ids that begin with a dash, as one in 64 ids in base64 does, at the end of the line, behind "--". Elsewhere
// the command would take such an id for a flag.
func line(words []string, more string) string {
	// Only the first run of words that begin with a dash and are no flags is moved: a command has at most
	// one group of ids.
	begin := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
	if begin < 0 || isFlag(words[begin]) {
		return "oncebox " + joined(words) + more
	}
	end := begin + 1
	for end < len(words) && !isFlag(words[end]) {
		end++
	}
	return "oncebox " + joined(words[:begin], words[end:]) + more + " -- " + joined(words[begin:end])
}

// isFlag reports whether a word is a flag of oncebox and not an id.
func isFlag(word string) bool {
	name, is := strings.CutPrefix(word, "--")
	return is && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") == ""
}

// joined quotes each word by itself, so the line can be pasted into a shell.
func joined(parts ...[]string) string {
	words := slices.Concat(parts...)
	for n, word := range words {
		words[n] = quoted(word)
	}
	return strings.Join(words, " ")
}

// quoted puts single quotes around a word that has a character which a POSIX shell might interpret.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
