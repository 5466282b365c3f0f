package schedule

// Passed is the progress on a shortcut: of the rows up to the number To, all have left or stay that a statement could see
// while the transactions of the shortcut were open.
type Passed struct {
	To int64
	N  int // the number of the shortcut, see progress.Shortcut
}

// Reached returns how far this is on the shortcut n, 0 if it belongs to another shortcut.
func (p Passed) Reached(n int) int64 {
	if p.N != n {
		return 0
	}
	return p.To
}

// Advance records progress on the shortcut n.
func (p *Passed) Advance(n int, to int64) {
	*p = Passed{To: max(p.Reached(n), to), N: n}
}
