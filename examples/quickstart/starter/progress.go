package starter

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// progress counts what the go command does, and prints it from time to time.
type progress struct {
	out                  io.Writer
	downloaded, compiled int
	began                bool
	rest                 strings.Builder // what is neither: errors of the compiler
}

// follow reads the lines of go build -v until they end, and prints a line at each tick.
func (p *progress) follow(said io.Reader, tick <-chan time.Time) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(said); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			p.count(line)
		case <-tick:
			p.print()
		}
	}
}

func (p *progress) count(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		p.downloaded++
	case line != "" && !strings.ContainsAny(line, " :\t#"): // the path of a package
		p.compiled++
	default:
		fmt.Fprintln(&p.rest, line)
	}
}

func (p *progress) print() {
	if !p.began {
		p.began = true
		fmt.Fprintln(p.out, "The first run downloads modules and compiles them. That takes a minute or two, and happens once.")
	}
	fmt.Fprintf(p.out, "  %d modules downloaded, %d packages compiled\n", p.downloaded, p.compiled)
}
