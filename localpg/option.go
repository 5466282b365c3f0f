package localpg

import (
	"io"

	"github.com/oncebox/oncebox/internal/devenv"
)

// Option changes how [Start] works.
type Option func(*options)

type options struct{ devenv.Options }

// Output is where [Start] writes a line about the server that it uses, and a line before it downloads anything. Default: os.Stderr.
func Output(w io.Writer) Option { return func(o *options) { o.Out = w } }

// Volatile starts the server with fsync and full_page_writes off, which is faster and good enough for tests. The data
// survives when the processes of the server are killed, but not when the machine crashes. A server that is named by a
// variable is not changed. Default: both are on.
func Volatile() Option { return func(o *options) { o.Options.Volatile = true } }
