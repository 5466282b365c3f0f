// Package commandtest runs a program of package command as an operator does: as a process, with variables and an exit code. It is for the mains
// in the modules of the adapters, whose tests plant faults at a broker and read what the program says of them.
//
//	func TestMain(m *testing.M) { commandtest.Main(m, main) }
//
//	p := commandtest.New(t, "oncebox-nats", "ONCEBOX_NATS_URL", url)
//	require.Equal(t, 3, p.Run("doctor").Code)
//
// Read first: program.go:Program.
package commandtest
