! SPDX-License-Identifier: MIT OR Apache-2.0
!
! A token goes around a ring of 8 objects, 100 times. Each object moves to the next PE when the token has passed.
! The number of PEs is that of COLONY_THREADS.
module ring
   use colony
   implicit none

   integer(c_int32_t), parameter :: members = 8, token_entry = 0
   integer(c_int64_t), parameter :: hops_at_end = 800
   integer(c_int32_t) :: member_class

   type, bind(c) :: member
      integer(c_int64_t) :: seen
   end type

   type, bind(c) :: token
      integer(c_int64_t) :: hops
   end type

contains

   function create(init, length, context) bind(c) result(state)
      type(c_ptr), value :: init, context
      integer(c_size_t), value :: length
      type(c_ptr) :: state
      type(member), pointer :: me
      allocate (me)
      me%seen = 0
      state = c_loc(me)
   end function

   subroutine destroy(state) bind(c)
      type(c_ptr), value :: state
      type(member), pointer :: me
      call c_f_pointer(state, me)
      deallocate (me)
   end subroutine

   function pack_member(state, into) bind(c) result(status)
      type(c_ptr), value :: state, into
      integer(c_int) :: status
      type(member), pointer :: me
      call c_f_pointer(state, me)
      status = colony_buffer_write(into, state, c_sizeof(me))
   end function

   function unpack_member(bytes, length) bind(c) result(state)
      type(c_ptr), value :: bytes
      integer(c_size_t), value :: length
      type(c_ptr) :: state
      type(member), pointer :: me, packed
      call c_f_pointer(bytes, packed)
      allocate (me)
      me = packed
      state = c_loc(me)
   end function

   function entry_method(state, number, message, length, context) bind(c) result(status)
      type(c_ptr), value :: state, message, context
      integer(c_int32_t), value :: number
      integer(c_size_t), value :: length
      integer(c_int) :: status
      type(member), pointer :: me
      type(token), pointer :: came
      type(token), target :: next
      type(colony_element) :: this
      call c_f_pointer(state, me)
      call c_f_pointer(message, came)
      status = colony_this(context, this)
      me%seen = me%seen + 1
      next%hops = came%hops + 1
      if (next%hops == hops_at_end) then
         print '(i0, a, i0, a)', next%hops, ' hops, ', me%seen, ' through the last object'
         status = colony_exit(context, 0)
         return
      end if
      this%index%at(1) = mod(this%index%at(1) + 1, int(members, c_int64_t))
      status = colony_send(context, this, token_entry, c_loc(next), c_sizeof(next))
      if (status /= colony_ok) return
      status = colony_migrate_to(context, mod(colony_pe(context) + 1, colony_pes(context)))
   end function

   function start(argc, argv, context) bind(c) result(status)
      integer(c_int), value :: argc
      type(c_ptr), value :: argv, context
      integer(c_int) :: status
      type(colony_element) :: first
      type(token), target :: begin
      status = colony_create_array(context, member_class, 1, [members], colony_block, c_null_ptr, 0_c_size_t, &
                                   first%array)
      if (status /= colony_ok) return
      begin%hops = 0
      status = colony_send(context, first, token_entry, c_loc(begin), c_sizeof(begin))
   end function
end module

program main
   use ring
   implicit none
   character(kind=c_char, len=7), target :: name = 'Member'//c_null_char
   character(kind=c_char, len=6), target :: token_name = 'token'//c_null_char
   type(c_ptr), target :: entries(1)
   type(colony_class) :: class
   type(colony_options) :: options
   type(c_ptr) :: program
   integer(c_int) :: code

   entries(1) = c_loc(token_name)
   class%size = c_sizeof(class)
   class%name = c_loc(name)
   class%entries = c_loc(entries)
   class%entry_count = 1
   class%create = c_funloc(create)
   class%destroy = c_funloc(destroy)
   class%pack = c_funloc(pack_member)
   class%unpack = c_funloc(unpack_member)
   class%entry = c_funloc(entry_method)
   options%size = c_sizeof(options)
   program = colony_program_new()
   member_class = colony_program_class(program, class)
   code = colony_run(program, options, 0, c_null_ptr, c_funloc(start))
   call colony_program_free(program)
   stop code, quiet=.true.
end program
