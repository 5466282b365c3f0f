package store

// Tables are the tables that a message passes.
type Tables struct {
	Entries  entryTable
	Attempts attemptTable
	Keys     keyTable
	Parked   parkedTable
	Heads    headTable
	Gates    gateTable
	Leases   leaseTable
	Steps    stepTable
	Cleaner  cleaner
}

// NewTables returns the tables of a handle.
func NewTables(h *Handle) Tables {
	return Tables{
		Entries: entryTable{h}, Attempts: attemptTable{h}, Keys: keyTable{h}, Parked: parkedTable{h}, Heads: headTable{h}, Gates: gateTable{h},
		Leases: leaseTable{h}, Steps: stepTable{h}, Cleaner: cleaner{h},
	}
}
