package command

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// foreign finds the commands of a text that are not those of the program with the name.
func foreign(root *cobra.Command, name, text string) (all []string) {
	var names []string
	for _, sub := range root.Commands() {
		names = append(names, sub.Name())
	}
	for _, found := range regexp.MustCompile(`([\w-]*oncebox[\w-]*) (`+strings.Join(names, "|")+`)\b`).FindAllStringSubmatch(text, -1) {
		if found[1] != name {
			all = append(all, found[0])
		}
	}
	return all
}

// The help of each command, and the scripts of the shells, name the program that was called.
func TestHelpNamesTheProgram(t *testing.T) {
	t.Parallel()
	root := newRoot(&cli.Session{Terminal: &cli.Terminal{}})
	for path, name := range map[string]string{
		"/usr/bin/oncebox-nats": "oncebox-nats", "./ops.exe": "ops", "my-oncebox": "my-oncebox", "oncebox": "oncebox", "": "oncebox",
	} {
		lines := [][]string{{"--help"}, {"completion", "bash"}, {"completion", "zsh", "--help"}}
		for line := range commands(root) {
			lines = append(lines, append(strings.Fields(line)[1:], "--help"))
		}
		for _, args := range lines {
			var out, errs bytes.Buffer
			code := run(t.Context(), &cli.Terminal{Out: &out, Errs: &errs}, []brokers.Kind{pulsar.Kind()}, append([]string{path}, args...))
			require.Zero(t, code, errs.String())
			require.Regexp(t, `(^|[^/\w.-])`+name+`\b`, out.String())
			require.True(t, path == name || path == "" || !strings.Contains(out.String(), path), "%s %v", path, args)
			require.Empty(t, foreign(root, name, out.String()), "%s %v", name, args)
		}
	}
}

// Mistakes are answered with the name of the program, whichever part of the command or of the library notices them.
func TestErrorsNameTheProgram(t *testing.T) {
	var errs bytes.Buffer
	run(t.Context(), &cli.Terminal{Errs: &errs}, nil, []string{"my-oncebox", "dead", "lst"})
	require.Equal(t, "my-oncebox: my-oncebox dead has no command \"lst\"; see my-oncebox dead --help\n", errs.String())

	s := newShop(t)
	s.called = "shop-ops"
	root := newRoot(&cli.Session{Terminal: &cli.Terminal{}})
	for line, says := range map[string]string{
		"tidy":                             `shop-ops has no command "tidy"; see shop-ops --help`,
		"dead lst":                         `shop-ops dead has no command "lst"; see shop-ops dead --help`,
		"status x":                         `shop-ops status takes no argument, and got "x"; see shop-ops status --help`,
		"keys resolve x":                   "give a key and a step: shop-ops keys resolve KEY STEP; see shop-ops keys resolve --help",
		"tenants move x":                   "give a tenant and a group: shop-ops tenants move TENANT GROUP",
		"consumers forget":                 "shop-ops consumers list shows the names",
		"consumers forget nobody --by ann": "shop-ops consumers list shows all that have run",
		"dead list --colour red":           "see shop-ops dead list --help",
		"--schema nowhere status":          "with this command: shop-ops migrate up",
		"keys resolve 17171717 s --not-done --by ann --why x --yes": "see shop-ops stuck",
	} {
		a := s.oncebox(strings.Fields(line)...)
		require.NotZero(t, a.code, line)
		require.True(t, strings.HasPrefix(a.errs, "shop-ops: "), a.errs)
		require.Contains(t, a.errs, says)
		require.Empty(t, foreign(root, "shop-ops", a.errs), line)
	}
	a := s.oncebox("--schema", "nowhere", "doctor")
	require.Contains(t, a.out, "to mend it: ")
	require.Contains(t, a.out, "shop-ops migrate up")
	require.Empty(t, foreign(root, "shop-ops", a.out))
}
