package a

func (s *Store) M1() {}
