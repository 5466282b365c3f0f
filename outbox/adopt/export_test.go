package adopt

// Read and Take are the statements of a batch, and Forwarded is the name of the view of the trigger.
func (m *Mover) Read() string      { return m.plan.read() }
func (m *Mover) Take() string      { return m.plan.take() }
func (m *Mover) Forwarded() string { return forwardName(m.plan.box, m.plan.table.label()) }
