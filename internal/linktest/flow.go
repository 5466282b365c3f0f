package linktest

// Direction is the direction in which bytes go over a [Link].
type Direction int

const (
	ToServer Direction = iota // requests
	ToClient                  // answers
)

// flow is what becomes of the bytes in one direction. The zero value passes all of them.
type flow struct {
	limited bool
	left    int // bytes that still pass if limited
	silent  bool
}

// Limit lets n more bytes pass in a direction. It closes the connection that had the last of them, and then each connection on which there are more,
// until [Link.Mend].
func (l *Link) Limit(d Direction, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows[d] = flow{limited: true, left: n}
}

// Silence drops all bytes in a direction, until [Link.Mend]. Connections stay open.
func (l *Link) Silence(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows[d] = flow{silent: true}
}

// Mend lets all bytes pass again. After a silence it closes the connections, which may have lost some.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flows[ToServer].silent || l.flows[ToClient].silent {
		l.cut()
	}
	l.flows = [2]flow{}
}

// allow returns how many of n bytes pass in a direction, and whether the connection stays open.
func (l *Link) allow(d Direction, n int) (passing int, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.flows[d]
	switch {
	case f.silent:
		return 0, true
	case !f.limited:
		return n, true
	case n < f.left:
		f.left -= n
		return n, true
	}
	passing, f.left = f.left, 0
	return passing, false
}
