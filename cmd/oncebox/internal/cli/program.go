package cli

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Program is the name by which the command was called: oncebox, oncebox-nats, or the name of somebody's own program. Texts with a command to type
// name it, because the reader may not have another one. Default: oncebox.
type Program string

// Called returns the program of a command line, whose first word may be a path.
func Called(word string) Program {
	name := strings.TrimSuffix(filepath.Base(word), ".exe")
	if name == "." || name == string(filepath.Separator) { // there was no word
		return ""
	}
	return Program(name)
}

// product is how the texts of the library name the command.
const product = "oncebox"

// Name returns the name.
func (p Program) Name() string { return cmp.Or(string(p), product) }

// Typed returns a command as an operator types it in a shell. Words that the shell would interpret are quoted.
func (p Program) Typed(words ...string) string { return p.line(words, "") }

// Decided is Typed for a command that needs an actor: the shell puts in the name of its user.
func (p Program) Decided(words ...string) string { return p.line(words, ` --by "$USER"`) }

// Renamed returns a text that names commands of oncebox, such as help or an error of the library, with the name of the program of cmd in their place.
func Renamed(cmd *cobra.Command, text string) string {
	// Most texts name no command, and most programs are oncebox. An expression for each text would take most of the start of a command.
	if cmd.Root().Name() == product || !strings.Contains(text, product+" ") {
		return text
	}
	var names []string
	for _, sub := range cmd.Root().Commands() {
		names = append(names, sub.Name())
	}
	// Not behind a dash or a slash: that is the end of another name, or of a path.
	command := regexp.MustCompile(`(^|[^\w/-])` + product + ` (` + strings.Join(names, "|") + `)\b`)
	return command.ReplaceAllString(text, "${1}"+strings.ReplaceAll(cmd.Root().Name(), "$", "$$")+" ${2}")
}

// line puts ids that begin with a dash, as one in 64 ids in base64 does, at the end of the line, behind "--". Elsewhere
// the command would take such an id for a flag.
func (p Program) line(words []string, more string) string {
	// Only the first run of words that begin with a dash and are no flags is moved: a command has at most
	// one group of ids.
	begin := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
	if begin < 0 || isFlag(words[begin]) {
		return quoted(p.Name()) + " " + joined(words) + more
	}
	end := begin + 1
	for end < len(words) && !isFlag(words[end]) {
		end++
	}
	return quoted(p.Name()) + " " + joined(words[:begin], words[end:]) + more + " -- " + joined(words[begin:end])
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
