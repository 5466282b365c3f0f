package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// feed gives a report the lines of go test -json, in a short form: action, package, test, text.
func feed(t *testing.T, r *report, lines ...[4]string) {
	t.Helper()
	for _, l := range lines {
		key := map[string]string{"attr": `,"Key":"rounds","Value":"` + l[3] + `"`}[l[0]]
		r.line([]byte(`{"Action":"` + l[0] + `","Package":"github.com/oncebox/oncebox/` + l[1] + `","Test":"` + l[2] +
			`","Output":"` + l[3] + `\n","Elapsed":1.5` + key + `}`))
	}
}

func TestReportOfARun(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	feed(t, r,
		[4]string{"run", "inbox", "TestGood"},
		[4]string{"output", "inbox", "TestGood", "nothing of interest"},
		[4]string{"attr", "inbox", "TestGood", "20"},
		[4]string{"pass", "inbox", "TestGood"},
		[4]string{"pass", "inbox", ""},
		[4]string{"run", "outbox", "TestBad"},
		[4]string{"output", "outbox", "TestBad", "TestBad has waited 1m0s for: rain"},
		[4]string{"attr", "outbox", "TestBad", "22"},
		[4]string{"run", "outbox", "TestBad/case"},
		[4]string{"output", "outbox", "TestBad/case", "no rain"},
		[4]string{"fail", "outbox", "TestBad/case"},
		[4]string{"fail", "outbox", "TestBad"},
		[4]string{"fail", "outbox", ""},
	)
	feed(t, r, [4]string{"skip", "inbox", "TestElsewhere"}, [4]string{"pass", "inbox", ""}) // in another step
	r.printTimes(time.Minute)
	require.Equal(t, `ok       1.5s  inbox
outbox: TestBad has waited 1m0s for: rain
FAIL outbox TestBad
TestBad has waited 1m0s for: rain
no rain

FAIL     1.5s  outbox
skipped: inbox TestElsewhere
ok       1.5s  inbox

time of each package:
       3s  inbox
     1.5s  outbox
3 tests in 1m0s, skipped: 1, failed: 1
`, out.String())
	require.Equal(t, 42, r.rounds)
	require.Equal(t, 1, r.failed)
}

func TestPackageThatEndsInTheMiddleOfATestHasFailed(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	feed(t, r,
		[4]string{"run", "uow", "TestEndless"},
		[4]string{"output", "uow", "TestEndless", "panic: test timed out"},
		[4]string{"fail", "uow", ""},
	)
	require.Equal(t, 1, r.failed)
	require.Contains(t, out.String(), "panic: test timed out")
}

func TestTestsThatTakeLongAreNamed(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	now := time.Now()
	r.now = func() time.Time { return now }
	feed(t, r, [4]string{"run", "inbox", "TestSlow"}, [4]string{"run", "inbox", "TestSlow/case"},
		[4]string{"run", "inbox", "TestThatWaitsForItsTurn"}, [4]string{"pause", "inbox", "TestThatWaitsForItsTurn"})
	now = now.Add(time.Minute)
	feed(t, r, [4]string{"run", "inbox", "TestQuick"})
	now = now.Add(time.Minute)
	feed(t, r, [4]string{"cont", "inbox", "TestThatWaitsForItsTurn"})
	r.sayWhatTakesLong()
	require.Equal(t, "... TestSlow has run for 2m0s: inbox\n", out.String())
}

// module makes a module of one package with a test.
func module(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\nfunc TestIt(t *testing.T) { " + body + " }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestStep(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		failed int
		says   string
	}{
		"passes":           {"", 0, "ok"},
		"fails":            {`t.Fatal("no rain")`, 1, "no rain"},
		"does not compile": {"x", 1, "undefined: x"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			s := step{what: "a module", args: []string{"-C", module(t, c.body), "test", "-json", "-count=1", "./..."}}
			require.NoError(t, s.run(t.Context(), nil, r))
			require.Equal(t, c.failed, r.failed, out.String())
			require.Contains(t, out.String(), c.says)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, step{args: []string{"version"}}.run(ctx, nil, newReport(&strings.Builder{})), context.Canceled)
}

func TestFuzzTargetsAreFound(t *testing.T) {
	t.Chdir("../..")
	steps, err := fuzzSteps(t.Context())
	require.NoError(t, err)
	require.Contains(t, steps, step{what: "event.FuzzDecode", args: goTest(
		"-run=^$", "-fuzz=^FuzzDecode$", "-fuzztime=100000x", "github.com/oncebox/oncebox/event",
	)})
}
