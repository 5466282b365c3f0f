package tour

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// The story starts this program again: here that is the test binary.
func TestMain(m *testing.M) {
	if isChild() {
		fmt.Fprintln(os.Stderr, child(context.Background()))
		os.Exit(1)
	}
	pgtest.Main(m)
}

func TestStoryEndsByItself(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", pgtest.URL(t))
	var out, logged strings.Builder
	usual := slog.Default()
	t.Cleanup(func() { slog.SetDefault(usual) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	require.NoError(t, run(t.Context(), &out, nil, false))
	require.Empty(t, logged.String(), "the story is interrupted by the log")
	for _, line := range []string{
		"   THE PROCESS DOES       KILLED          ORDER   EVENT   SO\n",
		"   commit, then publish   in between      yes     no      the event is LOST",
		"   publish, then commit   in between      no      yes     the event is FALSE",
		"   with the outbox        before COMMIT   no      no      nothing has happened",
		"   with the outbox        after COMMIT    yes     yes     both are there",
		`201 {"id":"o-1","total_cents":1000}  (the stored answer)`,
		"bob has spent 500 cents",
		"cid has spent 250 cents",
		"   customer   orders   cents\n   ann        1        1000\n   bob        1        500\n   cid        1        250\n" +
			"   eva        1        100\n   gus        1        100\n   zoe        1        1\n",
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "curl")
}

// Each line that a reader is asked to try gives the answer that is promised. They are read as they were printed.
func TestEveryCurlLineWorks(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", pgtest.URL(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, write, nil, true)
		_ = write.CloseWithError(err)
		ended <- err
	}()
	lines, promised, tried := bufio.NewScanner(read), "", 0
	for tried < len(tries()) && lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "Serving at "):
			requireConsole(t, strings.Fields(line)[2])
		case strings.HasPrefix(line, "# "):
			promised = line
		case strings.HasPrefix(line, "curl "):
			tried++
			resp, err := http.DefaultClient.Do(fromCurl(t, line))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Contains(t, promised, fmt.Sprintf("# %d: ", resp.StatusCode), "%s\n%s", line, body)
			require.Equal(t, strings.Contains(promised, "Idempotent-Replayed: true"), resp.Header.Get("Idempotent-Replayed") == "true", promised)
		}
	}
	require.NoError(t, lines.Err())
	require.Len(t, tries(), tried)
	stop()
	_, err := io.Copy(io.Discard, read)
	require.NoError(t, err)
	require.NoError(t, <-ended, "Ctrl-C is no failure")
}

// requireConsole looks at the page for operators, which shows nothing to a page of another site that has led its own name here.
func requireConsole(t *testing.T, url string) {
	t.Helper()
	for host, status := range map[string]int{"": http.StatusOK, "evil.example:80": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/console/", http.NoBody)
		require.NoError(t, err)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, host)
	}
}

// fromCurl returns the request that curl would send.
func fromCurl(t *testing.T, line string) *http.Request {
	t.Helper()
	words := strings.Split(line, "'") // what is quoted has odd numbers
	method, body, header := http.MethodGet, "", http.Header{}
	for i := 1; i < len(words); i += 2 {
		switch option := strings.TrimSpace(words[i-1]); {
		case strings.HasSuffix(option, "-H"):
			name, value, _ := strings.Cut(words[i], ": ")
			header.Set(name, value)
		case strings.HasSuffix(option, "-d"):
			method, body = http.MethodPost, words[i]
			header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl says of -d
		}
	}
	url := line[strings.LastIndex(line, " ")+1:]
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	return req
}
