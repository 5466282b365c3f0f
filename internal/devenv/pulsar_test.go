//go:build linux || darwin

package devenv

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPulsarThatDoesNotStartShowsItsLog(t *testing.T) {
	home := t.TempDir()
	p := &PulsarServer{server: server{name: "pulsar", timeout: DefaultStartTimeout}}
	require.NoError(t, p.prepare("KILL"))
	defer p.Stop()
	p.command = func() *exec.Cmd { return exec.Command("/bin/sh", "-c", "echo no such option; exit 3") }
	p.ready = p.healthy
	err := p.start(t.Context())
	require.ErrorContains(t, err, "pulsar ended before it answered: exit status 3")
	require.ErrorContains(t, err, "no such option")

	require.ErrorContains(t, p.serve(t.Context(), home, home, &Options{}), filepath.Join(home, "conf", "standalone.conf"))
}

func TestPulsarOfSomebodyElseDoesNotAnswer(t *testing.T) {
	t.Setenv("PULSAR_ADMIN_URL", "http://127.0.0.1:1")
	t.Setenv("PULSAR_URL", "pulsar://127.0.0.1:1")
	_, err := Pulsar(t.Context(), nil)
	require.ErrorContains(t, err, "PULSAR_URL does not answer")

	t.Setenv("PULSAR_ADMIN_URL", "")
	t.Setenv("PULSAR_URL", "127.0.0.1")
	_, err = Pulsar(t.Context(), nil)
	require.ErrorContains(t, err, "PULSAR_URL has to look like")
}

func TestSetProperties(t *testing.T) {
	got := setProperties("# a=1\na=1\nab=2\nlast=3", map[string]string{"a": "x"})
	require.Equal(t, "# a=1\nab=2\nlast=3\na=x\n", got)
}
