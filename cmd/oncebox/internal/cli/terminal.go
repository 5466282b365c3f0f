package cli

import (
	"io"
)

// Terminal is where a command reads and writes.
type Terminal struct {
	In        io.Reader
	Out, Errs io.Writer
	Asks      bool                       // somebody can answer a question
	Shows     bool                       // somebody looks at Errs
	Size      func() (width, height int) // size of the terminal Out; nil: Out is not a terminal
}
