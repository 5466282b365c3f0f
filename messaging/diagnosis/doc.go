// Package diagnosis is what a broker adapter reports to an operator about its broker: the command "oncebox doctor" asks an [Examiner].
//
// Some faults are those of one broker, such as a limit that drops messages; the adapter knows them. Other faults look the same at each broker,
// such as messages that wait for a consumer that does not run; [Examination.Compare] finds these in what the adapter has read.
//
// # Guarantees
//
// An Examiner only reads. Each [Finding] says what is wrong and what to do. If a part cannot be read, the error says so, and the findings about the
// other parts come with it. A broker without faults gives no findings.
//
// Read first: examiner.go:Examiner, then compare.go:Examination.Compare.
package diagnosis
