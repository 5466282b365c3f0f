package schedule

// Place is a number in a lane that counts on one shortcut only, see progress.Shortcut. For the progress of a lane or of a search, all
// rows up to the number have left or stay, as far as a statement could see them while the transactions of the shortcut were open.
type Place struct {
	To int64
	N  int // the number of the shortcut
}

// On returns the number on the shortcut n. It returns 0 if the place belongs to another shortcut.
func (p *Place) On(n int) int64 {
	if p.N != n {
		return 0
	}
	return p.To
}

// Advance moves the place forward, on the shortcut n.
func (p *Place) Advance(n int, to int64) {
	*p = Place{To: max(p.On(n), to), N: n}
}
