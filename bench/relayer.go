package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// relayer is a projector in another process, as the measuring process sees it.
type relayer struct {
	*child

	name string

	ended chan struct{} // closed when the process says nothing any more; then err says why
	err   error
}

// launchRelayer starts a process and waits until it is ready. It calls note for each of its publications, one after the
// other.
func launchRelayer(ctx context.Context, e errand, note func(publication)) (*relayer, error) {
	c, err := spawn(ctx, "relay", e, &publication{})
	if err != nil {
		return nil, fmt.Errorf("the projector %s: %w", e.Name, err)
	}
	r := &relayer{child: c, name: e.Name, ended: make(chan struct{})}
	go r.follow(note)
	return r, nil
}

func (r *relayer) follow(note func(publication)) {
	defer close(r.ended)
	for {
		p := publication{By: r.name}
		if err := r.out.Decode(&p); err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = fmt.Errorf("the projector %s: %w", r.name, err)
			}
			return
		}
		note(p)
	}
}

func (r *relayer) pid() int { return r.cmd.Process.Pid }

// stop has the process finish what is under way and hand its lanes back.
func (r *relayer) stop() error {
	_ = r.in.Close() // it may have ended
	<-r.ended
	if err := r.cmd.Wait(); err != nil {
		return errors.Join(r.err, fmt.Errorf("the projector %s: %w", r.name, err))
	}
	return r.err
}

// kill ends the process without a chance to do anything.
func (r *relayer) kill() error {
	if err := r.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the projector %s: %w", r.name, err)
	}
	<-r.ended
	_ = r.cmd.Wait() // it was killed
	return nil
}
