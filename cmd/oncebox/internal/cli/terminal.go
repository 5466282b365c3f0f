package cli

import (
	"io"
)

// Terminal has the input and outputs of a command.
type Terminal struct {
	In        io.Reader
	Out, Errs io.Writer
	Asks      bool                       // a person can answer a question
	Shows     bool                       // a person sees Errs, so progress can be shown there
	Size      func() (width, height int) // size of the terminal Out; nil: Out is not a terminal
}
