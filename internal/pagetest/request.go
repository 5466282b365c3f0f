package pagetest

import (
	"flag"
	"net/http"
	"strings"
	"testing"

	"github.com/google/shlex"
	"github.com/stretchr/testify/require"
)

// Request returns the request of a command line for curl, but to the server at url. It knows the options -i, -X and -H.
func Request(t *testing.T, line, url string) *http.Request {
	t.Helper()
	words, err := shlex.Split(line)
	require.NoError(t, err, line)
	require.Equal(t, "curl", words[0], line)
	flags, header := flag.NewFlagSet("curl", flag.ContinueOnError), http.Header{}
	flags.Bool("i", false, "")
	method := flags.String("X", http.MethodGet, "")
	flags.Func("H", "", func(text string) error {
		name, value, _ := strings.Cut(text, ": ")
		header.Set(name, value)
		return nil
	})
	require.NoError(t, flags.Parse(words[1:]), line)
	require.Equal(t, 1, flags.NArg(), "curl has one address: %s", line)
	_, path, _ := strings.Cut(strings.TrimPrefix(flags.Arg(0), "http://"), "/")
	req, err := http.NewRequestWithContext(t.Context(), *method, url+"/"+path, http.NoBody)
	require.NoError(t, err, line)
	req.Header = header
	return req
}
