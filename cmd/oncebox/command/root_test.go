package command

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/shlex"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

// commands lists the commands that do something, as they are typed.
func commands(cmd *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, sub := range cmd.Commands() {
		switch {
		case sub.Name() == "help", sub.Name() == "completion":
		case sub.HasSubCommands():
			maps.Copy(all, commands(sub))
		default:
			all[sub.CommandPath()] = sub
		}
	}
	return all
}

// parses finds what is wrong with a line as it is typed in a shell: the command, its flags and the number of its arguments.
func parses(line string) error {
	words, err := shlex.Split(line)
	if err != nil {
		return err
	}
	for n, word := range words {
		if word == "|" || word == ">" || word == ">>" || word == "&&" {
			words = words[:n]
			break
		}
	}
	if len(words) == 0 || words[0] != "oncebox" {
		return errors.New("it is not the command oncebox")
	}
	root := newRoot(&cli.Session{Terminal: &cli.Terminal{}})
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return cli.Usage(cmd, errors.New("there is no command "+args[0]))
	}
	if len(rest) == 0 {
		return nil // it is named, not called
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// The shell offers every command, and no files as their arguments.
func TestCompletionOffersEveryCommand(t *testing.T) {
	t.Parallel()
	all := commands(newRoot(&cli.Session{Terminal: &cli.Terminal{}}))
	require.Greater(t, len(all), 20)
	for path := range all {
		words := strings.Fields(path)
		for n := 1; n < len(words); n++ {
			typed := append(append([]string{"__complete"}, words[1:n]...), words[n][:1])
			a := command(t, &cli.Terminal{}, typed...)
			require.Zero(t, a.code, a.errs)
			require.Regexp(t, `(?m)^`+words[n]+`\t`, a.out, "%q", typed)
		}
		a := command(t, &cli.Terminal{}, append(append([]string{"__complete"}, words[1:]...), "")...)
		require.Contains(t, a.errs, "ShellCompDirectiveNoFileComp", path)
		flags := command(t, &cli.Terminal{}, append(append([]string{"__complete"}, words[1:]...), "--")...)
		require.Contains(t, flags.out, "--json\t", path)
	}
	require.Contains(t, command(t, &cli.Terminal{}, "__complete", "grants", "").out, "service\n")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		a := command(t, &cli.Terminal{}, "completion", shell)
		require.Zero(t, a.code, a.errs)
		require.Contains(t, a.out, "__complete", shell)
	}
}

// Each command has examples, and the command line understands each of them.
func TestExamplesOfCommandsParse(t *testing.T) {
	t.Parallel()
	for path, cmd := range commands(newRoot(&cli.Session{Terminal: &cli.Terminal{}})) {
		require.NotEmpty(t, cmd.Example, "%s has no example", path)
		for line := range strings.Lines(cmd.Example) {
			require.True(t, strings.HasPrefix(line, "  "+path), "an example of %s: %s", path, line)
			require.NoError(t, parses(line), line)
		}
		a := command(t, &cli.Terminal{}, append(strings.Fields(path)[1:], "--help")...)
		require.Zero(t, a.code)
		require.Contains(t, a.out, cmd.Example)
	}
}

// The command line understands each command line in the documentation: each piece of code that begins with its name, and each such line of a block.
func TestCommandLinesOfTheDocumentationParse(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../../docs/adr/*.md")
	require.NoError(t, err)
	lines := 0
	for _, page := range append(append(pages, more...), "../../../README.md", "../doc.go") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, line := range commandLines(string(text)) {
			lines++
			require.NoError(t, parses(line), "%s: %s", page, line)
		}
	}
	require.Greater(t, lines, 20)
	require.Error(t, parses("oncebox dead lst"))
	require.Error(t, parses("oncebox dead list --tenat acme"))
	require.Error(t, parses("oncebox tidy"))
	require.Error(t, parses("oncebox dead show a b"))
}

// commandLines are the command lines of a page.
func commandLines(page string) (lines []string) {
	prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllStringFunc(page, func(block string) string {
		for line := range strings.Lines(block) {
			if line, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "oncebox "); found {
				lines = append(lines, "oncebox "+line)
			}
		}
		return ""
	})
	for _, code := range regexp.MustCompile("`(oncebox [^`]+)`").FindAllStringSubmatch(prose, -1) {
		lines = append(lines, code[1])
	}
	for _, comment := range regexp.MustCompile(`(?m)^//\t(oncebox .*)$`).FindAllStringSubmatch(prose, -1) {
		lines = append(lines, comment[1])
	}
	return lines
}
