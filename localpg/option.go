package localpg

import (
	"io"

	"github.com/oncebox/oncebox/internal/devenv"
)

// Option changes what [Start] does.
type Option func(*options)

type options struct{ devenv.Options }

// Output says where one line about the server goes, and one that announces a download. Default: os.Stderr.
func Output(w io.Writer) Option { return func(o *options) { o.Out = w } }

// Volatile starts the server with fsync and full_page_writes off: faster, and good enough for tests. The data survives a kill of the
// server's processes, but no crash of the machine. A server that was found is left as it is. Default: as PostgreSQL does.
func Volatile() Option { return func(o *options) { o.Options.Volatile = true } }
