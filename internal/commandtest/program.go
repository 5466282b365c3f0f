package commandtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// called is set in the processes that are the program and not the test.
const called = "COMMANDTEST"

// Main runs the tests, or the program in a process that a test has started.
func Main(m *testing.M, program func(), stop ...func() error) {
	if os.Getenv(called) != "" {
		program()
		return
	}
	pgtest.Main(m, stop...)
}

// Program is a program on tables of its own.
type Program struct {
	t    *testing.T
	name string
	env  []string
}

// New makes the tables of a service shop. variables are names and values in turn.
func New(t *testing.T, name string, variables ...string) *Program {
	t.Helper()
	db := pgtest.Migrated(t)
	p := &Program{t: t, name: name, env: []string{
		called + "=1", "ONCEBOX_DATABASE_URL=" + pgtest.URL(t), "ONCEBOX_SCHEMA=" + db.Schema, "ONCEBOX_SOURCE=shop",
	}}
	for n := 0; n+1 < len(variables); n += 2 {
		p.env = append(p.env, variables[n]+"="+variables[n+1])
	}
	return p
}

// With returns the program with another value of a variable.
func (p *Program) With(variable, value string) *Program {
	return &Program{p.t, p.name, append(append([]string{}, p.env...), variable+"="+value)}
}

// Answer is what a call of the program has printed, and its exit code.
type Answer struct {
	Code      int
	Out, Errs string
}

// hang is what takes longer than anything that works.
const hang = 2 * time.Minute

// Run calls the program.
func (p *Program) Run(args ...string) Answer {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0]) //nolint:gosec // this program
	cmd.Args = append([]string{p.name}, args...)
	// Of this process's variables only what a program needs to run: PULSAR_URL and others would choose another broker.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, p.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && (!ended || ctx.Err() != nil) {
		require.NoError(p.t, errors.Join(err, ctx.Err()), "%s %v\n%s%s", p.name, args, out.String(), errs.String())
	}
	return Answer{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// Doctor calls the doctor, and returns its findings about the broker, a line each: the severity, the check, the problem, and the way to mend it. It
// calls the doctor twice, because the text for people must have the same findings as the document for programs.
func (p *Program) Doctor(args ...string) (findings []string) {
	p.t.Helper()
	a := p.Run(append([]string{"doctor", "--json"}, args...)...)
	var document struct {
		Findings []diagnosis.Finding `json:"findings"`
		Broker   bool                `json:"broker"`
	}
	require.NoError(p.t, json.Unmarshal([]byte(a.Out), &document), "%d %s", a.Code, a.Errs)
	require.True(p.t, document.Broker, "a broker is examined")
	require.Equal(p.t, len(document.Findings) > 0, a.Code == 3, "exit code %d: %s", a.Code, a.Errs)
	text := p.Run(append([]string{"doctor"}, args...)...)
	require.Equal(p.t, a.Code, text.Code)
	for _, f := range document.Findings {
		if f.Check != diagnosis.Broker && f.Check != diagnosis.Connection {
			continue // about the server of the tests, which is volatile
		}
		findings = append(findings, string(f.Severity)+" ("+f.Check+"): "+f.Problem+": "+f.Mend)
		require.Contains(p.t, text.Out, string(f.Severity)+" ("+f.Check+"): "+oneLine(f.Problem)+"\n  to mend it: "+oneLine(f.Mend)+"\n")
	}
	return findings
}

// RequireFindings calls the doctor. Each of its findings about the broker must have one of the texts, and each text one finding.
func (p *Program) RequireFindings(want ...string) {
	p.t.Helper()
	found := p.Doctor()
	require.Len(p.t, found, len(want), "%s", strings.Join(found, "\n"))
	for _, text := range want {
		require.Equal(p.t, 1, strings.Count(strings.Join(found, "\n")+"\n", text), "%q in\n%s", text, strings.Join(found, "\n"))
	}
}

// RequireRefused calls the commands that use the broker with an address that cannot be meant. Each says so, and none waits.
func (p *Program) RequireRefused(variable, url, says string) {
	p.t.Helper()
	wrong := p.With(variable, url)
	for _, command := range []string{"relay", "status", "stuck"} {
		a := wrong.Run(command)
		require.Equal(p.t, 1, a.Code, "%s %s", command, url)
		require.Contains(p.t, a.Errs, says, command)
		require.Empty(p.t, a.Out, command)
	}
	found := wrong.Doctor()
	require.Len(p.t, found, 1, url)
	require.Contains(p.t, found[0], "problem (connection): the service could not connect to the broker: ")
	require.Contains(p.t, found[0], says)
}

// oneLine returns a text as a table has it.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }
